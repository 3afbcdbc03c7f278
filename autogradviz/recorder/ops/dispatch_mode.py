"""The dispatch seam: every operator below autograd, and what it wrote.

NOTE [ Versions under a dispatch mode ]
The mode stands below the kernel that bumps version counters (``ADInplaceOrView``), so a counter
moves only after we have returned: the version after such a write is the one before it plus one.
Operators without that kernel move the counter themselves, or not at all (fused optimizers), and
the counter is read after them. One family does neither under a mode: ``_foreach_*_`` on the CPU
runs one in-place op for each tensor, and those are not dispatched through the bumping kernel
when a mode called them. Unwatched they bump once, so we do it for them.
"""

from __future__ import annotations

from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import torch
from torch.utils._python_dispatch import (
    TorchDispatchMode,
    _get_current_dispatch_mode,
    _pop_mode,
    _push_mode,
)

from autogradviz.events import NO_ID, OpCalled, VersionBumped
from autogradviz.recorder.ids.int_map import grow
from autogradviz.recorder.ids.tensors import PLAIN_TENSORS, version_of
from autogradviz.recorder.ids.versions import Written, bump_missed_foreach
from autogradviz.recorder.ops.mutation_clones import tell_clone
from autogradviz.recorder.ops.op_io import Numbers, look, read_inputs_no_override, read_outputs
from autogradviz.recorder.ops.random_ops import tell_draw
from autogradviz.recorder.ops.schemas import SIGNATURES, Signature, signature_of
from autogradviz.recorder.torch_internals.dispatch_workarounds import (
    call_with_tls_keys,
    decompose,
    redispatch_with_autograd,
    wrap_scalars,
)
from autogradviz.recorder.torch_internals.dynamo import hidden

if TYPE_CHECKING:
    from collections.abc import Sequence

    from autogradviz.recorder.recorder import Recorder
    from autogradviz.recorder.threads import ThreadState

_sequence_nr = torch._C._autograd._get_sequence_nr  # noqa: SLF001
_graph_task = torch._C._current_graph_task_id  # noqa: SLF001
_grad_enabled = torch.is_grad_enabled
_inference_mode = torch.is_inference_mode_enabled
_NoFunctions: Final = torch._C.DisableTorchFunction  # noqa: SLF001
_function_modes: Final = torch._C._len_torch_function_stack  # noqa: SLF001
_Tensor: Final = torch.Tensor
_UNWRITTEN: Final = (0,)
"""The versions of one tensor that nobody wrote: one tuple for all of them."""
_NO_REGION: Final = (None, None)

Call: TypeAlias = tuple[
    Signature,
    "ThreadState",
    bool,
    "int | None",
    "int | None",
    tuple[int, ...],
    tuple[int, ...],
    "Sequence[Written]",
    tuple[int, ...],
]
"""One call of an operator, before it ran.

Its signature and thread; whether nobody overrides functions and no contents are read; the node that
it makes and the custom Function whose first op it is, by sequence number; of what it took the
numbers and versions; what it writes; fingerprints.
"""


class OpMode(TorchDispatchMode):
    """Records every operator and passes it on unchanged."""

    supports_higher_order_operators = True

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder
        self._append = recorder.log.appender(OpCalled)

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Let ``torch.compile`` compile as if nobody looked."""
        return True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # The wrapper that this would put around the handler imports Dynamo (a second) and costs
        # as much as an op; ``hidden`` does the same for nothing.
        return False

    def suspend(self) -> bool:
        """Step aside where nobody stands above us; return whether we did."""
        if _get_current_dispatch_mode() is not self:
            return False
        _pop_mode()
        return True

    def resume(self) -> None:
        """Come back after ``suspend``."""
        _push_mode(self)

    @hidden
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        call = self._begin(func, args, kwargs)
        if call is None:
            return func(*args, **kwargs)
        signature = call[0]
        run, special, casts = signature.run, signature.special, signature.casts
        started = perf_counter_ns()
        try:
            if special == "bare":
                result = redispatch_with_autograd(self, func, types, args, kwargs)
            elif special and _inference_mode():
                return decompose(self, func, args, kwargs)
            elif casts is not None:
                result = call_with_tls_keys(casts, run, args, kwargs)
            elif kwargs:
                result = run(*args, **kwargs)
            else:
                result = run(*args)
        except BaseException as error:
            wrapped = wrap_scalars(error, signature, args)
            if wrapped is not None:
                return self.__torch_dispatch__(func, types, wrapped, kwargs)
            self._finish(call, None, started, error)
            raise
        row = self._finish(call, result, started, None)
        if signature.draw is not None and row is not None:
            self._recorder.guarded(
                "random", tell_draw, self._recorder, signature.draw, args, kwargs, row, result
            )
        return result

    def _begin(self, func: Any, args: Any, kwargs: Any) -> Call | None:
        recorder = self._recorder
        try:
            try:
                signature = SIGNATURES[func._op]  # noqa: SLF001
            except (KeyError, AttributeError):  # first met, or of higher order
                signature = signature_of(func)
            now = _sequence_nr()
            state = recorder.threads.local.state
            # The node exists before its op is dispatched (counter - 1). Inside a custom
            # Function's forward gradients are off, and the newest node is the Function's own.
            fresh = now > state.sequence_nr
            state.sequence_nr = now
            created = inside = None
            if fresh and not _grad_enabled():
                inside = now - 1
                fresh = False
            plain = not (_function_modes() or recorder.with_fingerprints)
            tensor: Any = args[0] if signature.alone and args else None
            if plain and (type(tensor) is _Tensor or type(tensor) in PLAIN_TENSORS):
                tensor_id = recorder.tensors.number(tensor, state.number)
                try:
                    version = tensor._version  # noqa: SLF001 - has no public name
                except RuntimeError:  # inference mode
                    version = NO_ID
                created = now - 1 if fresh and tensor.requires_grad else None
                storage_id = recorder.tensors.storage_of[tensor_id]
                known = recorder.versions.known
                try:
                    highest = known[storage_id]
                except IndexError:
                    grow(known, storage_id)
                    highest = NO_ID
                if highest == NO_ID != storage_id:
                    known[storage_id] = version  # seen for the first time
                elif highest != version:
                    recorder.versions.seen(tensor_id, storage_id, version)
                versions = (version,) if version else _UNWRITTEN
                return signature, state, plain, created, inside, (tensor_id,), versions, (), ()
            looked = look(recorder, signature, args, kwargs, fresh, plain) if plain else None
            requires_grad, ids, found, written, hashes = looked or read_inputs_no_override(
                recorder, signature, args, kwargs, fresh
            )
            if requires_grad:
                created = now - 1
            return signature, state, plain, created, inside, ids, found, written, hashes  # noqa: TRY300
        except Exception as error:  # noqa: BLE001 - whatever we got wrong, the op must run
            recorder.fail("ops", error)
            return None

    def _finish(
        self, call: Call, result: Any, started: int, error: BaseException | None
    ) -> tuple[Any, ...] | None:
        ended = perf_counter_ns()
        recorder = self._recorder
        try:
            signature, state, plain, created, inside, taken, versions, written, hashes = call
            if signature.foreach and error is None:
                bump_missed_foreach(written)
            given: Numbers
            versions_after: Numbers
            hashes_after: Numbers = ()
            if plain and type(result) is _Tensor and not written:
                given = (recorder.tensors.number(result, state.number, ended),)
                try:
                    version = result._version  # noqa: SLF001
                except RuntimeError:  # inference mode
                    version = NO_ID
                versions_after = (version,) if version else _UNWRITTEN
            else:
                given, versions_after, hashes_after = read_outputs(
                    recorder, signature, result, written
                )
            stack_id = recorder.stacks.capture(2, state) if recorder.with_stacks else None
            region_id, recompute_id = state.regions[-1] if state.regions else _NO_REGION
            of_graph = "backward" if state.running or _graph_task() != -1 else "forward"
            phase = of_graph if recompute_id is None else "recompute"
            tally = recorder.tally
            # A call less than its own method; as an attribute by itself it is found at once.
            next_number, append = tally.number, self._append
            tally.newest = seq = next_number()
            if seq >= tally.due:
                tally.filled(seq)
            row = (
                seq, started - tally.began_ns, state.number, stack_id,
                signature.name, phase, taken, versions, given, versions_after,
                tuple([tensor_id for tensor_id, _, _ in written]) if written else (),
                hashes, hashes_after, ended - started, created,
                state.running[-1][1] if state.running else None,
                state.calls[-1] if state.calls else None,
                region_id, recompute_id, error is not None,
            )  # fmt: skip
            append(row)
            if created is not None:
                recorder.saves.op_created(created, row)
                if error is None:
                    recorder.newest.remember(result)
            if inside is not None:
                recorder.saves.custom.setdefault(inside, stack_id)
            if (written or signature.clone) and error is None:
                self._tell_writes(signature, row, written)
        except Exception as own:  # noqa: BLE001
            recorder.fail("ops", own)
            return None
        return row

    def _tell_writes(
        self, signature: Signature, row: tuple[Any, ...], written: Sequence[Written]
    ) -> None:
        """Tell which versions an op raised, and what it cloned for a write to come."""
        recorder = self._recorder
        seq, _, thread, stack_id, name, _, taken, _, given, *_ = row
        if signature.clone and torch.autograd.graph._allow_mutation_on_saved_tensors_enabled:  # noqa: SLF001
            tell_clone(recorder, taken[0], given, seq, thread, stack_id)
        for tensor_id, tensor, before in written:
            if before == NO_ID:
                continue
            after = before + 1 if signature.bumps_later else version_of(tensor)
            if after == before:
                continue
            recorder.versions.bumped(tensor_id, after)
            storage_id = recorder.tensors.storage_id(tensor_id)
            recorder.emit(
                VersionBumped, tensor_id, storage_id, before, after, name, seq,
                stack_id=stack_id, thread=thread,
            )  # fmt: skip
