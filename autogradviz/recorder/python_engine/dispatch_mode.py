"""The dispatch mode: records every operator below autograd, and the tensors that it wrote.

NOTE [ Versions under a dispatch mode ]
The mode stands below the kernel that bumps version counters (``ADInplaceOrView``), so a counter
changes only after the mode has returned: the version after such a write is the one before it plus
one. Operators without that kernel bump the counter themselves, or not at all (fused optimizers),
and the counter is read after them. One family does neither under a mode: ``_foreach_*_`` on the CPU
runs one in-place op for each tensor, and those are not dispatched through the bumping kernel when a
mode called them. Without a mode they bump once, so the mode does it for them.
"""

from __future__ import annotations

import functools
import sys
import threading
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import torch

from autogradviz.events import NO_ID, OpCalled, VersionBumped, field_names
from autogradviz.recorder.ops.collectives import Collectives
from autogradviz.recorder.ops.device_copies_and_streams import emit_copy, emit_stream
from autogradviz.recorder.ops.hashes_norms_and_draws import OutputNorms, emit_draw
from autogradviz.recorder.ops.op_arguments import EAGER, LEFT_OUT, OpArgumentTable
from autogradviz.recorder.ops.op_signatures import SIGNATURES, Signature, signature_of
from autogradviz.recorder.python_engine.int_map import grow
from autogradviz.recorder.python_engine.op_inputs_and_outputs import Ints, TensorReader
from autogradviz.recorder.python_engine.saved_tensors import emit_clone
from autogradviz.recorder.torch_internals.keep_dynamo_out import skip_dynamo_recursive, skip_frame
from autogradviz.recorder.torch_internals.patches import patched
from autogradviz.recorder.torch_internals.private_api import (
    DisableTorchFunction,
    OpOverload,
    TorchDispatchMode,
    allows_mutation_on_saved_tensors,
    current_graph_task_id,
    get_current_dispatch_mode,
    get_sequence_nr,
    len_torch_dispatch_stack,
    len_torch_function_stack,
    pop_mode,
    push_mode,
    tree_leaves,
)
from autogradviz.recorder.torch_internals.run_below_mode import (
    bump_missed_foreach,
    call_with_tls_keys,
    decompose,
    redispatch_with_autograd,
    wrap_scalars,
)
from autogradviz.recorder.torch_internals.wrapper_tensors import (
    PLAIN_TENSORS,
    version_of,
)
from autogradviz.support.defer_and_redeliver_signals import called_when_freed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from autogradviz.recorder.ops.hashes_norms_and_draws import Fingerprints, RecentOutputs
    from autogradviz.recorder.ops.op_arguments import OpOrigins
    from autogradviz.recorder.python_engine.ops_that_created_nodes import CreatorTable
    from autogradviz.recorder.python_engine.stack_table import StackTable
    from autogradviz.recorder.python_engine.tensor_ids import TensorTable
    from autogradviz.recorder.python_engine.version_table import VersionTable, Written
    from autogradviz.recorder.session import Session
    from autogradviz.recorder.step_digest import StepDigest
    from autogradviz.recorder.thread_state import ThreadState

_sequence_nr = get_sequence_nr
_graph_task = current_graph_task_id
_function_modes = len_torch_function_stack
_modes = len_torch_dispatch_stack
_grad_enabled = torch.is_grad_enabled
_inference_mode = torch.is_inference_mode_enabled
_Tensor: Final = torch.Tensor
_UNWRITTEN: Final = (0,)
"""The versions of one tensor that was never written: one tuple for all of them."""
_NO_REGION: Final = (None, None)
_RECENT: Final = 64
"""Ops among which the last one of a thread is searched."""
_THREAD: Final = field_names(OpCalled).index("thread")
_OP: Final = field_names(OpCalled).index("op")
_NOTHING: Final = nullcontext()
_READ_DEVICE: Final = torch.ops.prim.device.default
"""Python and C++ read the device of a fake tensor with it. It may run inside another operator."""


def _count_nothing(_name: str, _phase: str, _state: ThreadState) -> None:
    """Leave the digest of the step: whether compiled ops are recorded may differ among ranks."""


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
"""One call of an operator, before it runs.

Its signature and thread; whether nothing overrides functions and no contents are read; the sequence
numbers of the node that it creates and of the custom Function whose first op it is; ids and
versions of its inputs; the inputs that it writes; fingerprints.
"""


_LEAVING: Final = "autogradviz"


class OpMode(TorchDispatchMode):
    """Records every operator and runs it unchanged."""

    supports_higher_order_operators = True

    def __init__(
        self,
        session: Session,
        digest: StepDigest,
        stacks: StackTable,
        tensors: TensorTable,
        versions: VersionTable,
        fingerprints: Fingerprints,
        creators: CreatorTable,
        recent_outputs: RecentOutputs,
    ) -> None:
        super().__init__()
        self._session = session
        self._local = session.threads.local
        self._sequence = session.sequence
        self._append = session.log.appender(OpCalled)
        self._newest = session.log.recent(OpCalled).newest
        self._stacks = stacks if session.with_stacks else None
        self._streams = True if torch.accelerator.is_available() else None
        self._norms = OutputNorms(session) if session.with_norms else None
        self._tensors = tensors
        self._versions = versions
        self._reader = TensorReader(session, tensors, versions, fingerprints)
        self._creators = creators
        self._recent_outputs = recent_outputs
        self._stops = session.stops
        self._verifier = session.verifier
        self._execute_call = self._run_call if session.verifier is None else self._run_verified
        self._execute = self._run_and_emit_freed if session.with_memory else self._execute_call
        self._add_to_step = (digest.add, _count_nothing, _count_nothing)
        self._collectives = Collectives(session)
        self.arguments = OpArgumentTable(session)
        """The arguments of operators that were recorded."""
        self._intern_arguments = self.arguments.intern
        self.collective_count = self._collectives.count
        self.compiled_code: OpOrigins | None = None

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Let ``torch.compile`` compile as if no mode were active."""
        return True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # The wrapper that True would put around the handler imports Dynamo (one second) and costs
        # as much as an op; ``skip_dynamo_recursive`` does the same at no cost.
        return False

    def last_op(self) -> tuple[int, str] | None:
        """Return event and name of the op that ended last on this thread."""
        number = self._local.state.number
        rows = reversed(self._newest(_RECENT))
        return next(((row[0], row[_OP]) for row in rows if row[_THREAD] == number), None)

    @contextmanager
    def active(self) -> Iterator[None]:
        """Observe the operators of this thread while the context is open.

        The stack of modes belongs to the thread. If the context is left on another one, or while
        another mode is above, this mode leaves the stack with the next operator of the thread.
        """
        thread = threading.get_ident()
        push_mode(self)  # ``__enter__`` would also answer ``is_in_torch_dispatch_mode`` otherwise
        try:
            with patched(TorchDispatchMode, __exit__=self._exit_of_others()):
                yield
        finally:
            # No function that could fail runs until the mode is off the stack.
            if thread == threading.get_ident() and get_current_dispatch_mode() is self:
                pop_mode()
            else:
                self.__torch_dispatch__ = self._pass_and_leave  # type: ignore[method-assign]

    def _exit_of_others(self) -> Callable[..., Any]:
        """Return ``TorchDispatchMode.__exit__`` that never takes this mode off the stack.

        A mode that was entered in another hook, or before the recording, is not above this one
        when it is left: PyTorch takes off what is below, or raises if nothing is.
        """
        original = TorchDispatchMode.__exit__

        @functools.wraps(original)
        @skip_frame
        def leave(mode: Any, *exception: Any) -> Any:
            if mode is self or get_current_dispatch_mode() is not self:
                return original(mode, *exception)
            pop_mode()
            try:
                return original(mode, *exception)
            finally:
                push_mode(self)

        return leave

    @skip_dynamo_recursive
    def _pass_and_leave(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ARG002
        """Run an operator unchanged, and leave the stack of modes."""
        result = func(*args, **(kwargs or {}))
        if kwargs is not None and isinstance(func, OpOverload):
            # While this runs the mode is not on the stack. C++ puts it back, then frees this dict.
            kwargs[_LEAVING] = called_when_freed(self.suspend)
        return result

    def suspend(self) -> bool:
        """Deactivate the mode if it is the innermost one; return whether it was."""
        if get_current_dispatch_mode() is not self:
            return False
        pop_mode()
        return True

    def resume(self) -> None:
        """Activate the mode again after ``suspend``."""
        push_mode(self)

    @skip_dynamo_recursive
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        state = self._local.state
        traced = (state.suspended or _modes()) and self._is_traced(state)
        origin = EAGER
        if self.compiled_code is not None and not traced:
            origin = self._origin_of_caller(self.compiled_code)
        if origin >= LEFT_OUT and signature_of(func).repeats:
            state.sequence_nr = _sequence_nr()
            return self._run_unrecorded(func, types, args, kwargs)
        call = None if traced or func is _READ_DEVICE else self._begin(func, args, kwargs, state)
        if call is None:
            return func(*args, **kwargs)
        signature = call[0]
        known = self._arguments_and_time(call, func, args, kwargs)
        if known is None:
            return self._run_unrecorded(func, types, args, kwargs)
        arguments_id, started = known
        try:
            if signature.special == "composite" and _inference_mode():
                return decompose(self, func, args, kwargs)
            result = self._execute(call, func, types, args, kwargs)
        except BaseException as error:
            positions = {position for position, _, _ in signature.places}
            wrapped = wrap_scalars(error, positions, args)
            if wrapped is not None:
                return self.__torch_dispatch__(func, types, wrapped, kwargs)
            state.suspect = state.running[-1][1] if state.running else NO_ID
            row = self._finish(call, None, started, error, origin, arguments_id)
            self._failed(error, row)
            self._stop_after(func, args, kwargs, None, error, row, call)
            raise
        row = self._finish(call, result, started, None, origin, arguments_id)
        if row is not None and (signature.draw or signature.copy or self._streams) is not None:
            self._emit_draw_or_copy(signature, args, kwargs, row, result)
        if self._norms is not None and row is not None and signature.collective is None:
            self._session.guarded("norms", self._norms.read, result, *row[:3:2])
        self._stop_after(func, args, kwargs, result, None, row, call)
        return result

    def _emit_draw_or_copy(
        self, signature: Signature, args: Any, kwargs: Any, row: tuple[Any, ...], result: Any
    ) -> None:
        """Record the random numbers that an op drew, or what it copied between devices."""
        call = self._session, args, kwargs, row, result
        if signature.draw is not None:
            self._session.guarded("random", emit_draw, signature.draw, *call)
        if signature.copy is not None:
            self._session.guarded("copies", emit_copy, signature.copy, *call)
        if self._streams is not None:
            tensors = tree_leaves((result, args))
            self._session.guarded(
                "streams", emit_stream, self._session, tensors, row[0], stack_id=row[3]
            )

    def _origin_of_caller(self, compiled_code: OpOrigins) -> int:
        try:
            handler = sys._getframe().f_back  # noqa: SLF001 - the documented way
            # On a thread of a device no frame stands below the handler.
            return compiled_code.origin_of(None if handler is None else handler.f_back)
        except Exception as error:  # noqa: BLE001 - whatever failed here, the op must run
            self._session.fail("ops", error)
            return EAGER

    def _run_call(self, call: Call, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return self._run(call[0], func, types, args, kwargs)

    def _run_and_emit_freed(self, call: Call, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Run an op, and record the storages that were freed since the last one."""
        result = self._execute_call(call, func, types, args, kwargs)
        self._session.guarded("memory", self._tensors.emit_freed)
        return result

    def _run_verified(self, call: Call, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Run an op, and keep what its node is verified with."""
        verifier = self._verifier
        verifier.guarded(verifier.before_op, func, args, kwargs, call[3])
        result = self._run(call[0], func, types, args, kwargs)
        verifier.guarded(verifier.after_op, result)
        return result

    def _run(self, signature: Signature, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if signature.special == "bare":
            return redispatch_with_autograd(self, func, types, args, kwargs)
        if signature.casts is not None:
            return call_with_tls_keys(signature.casts, signature.run, args, kwargs)
        return signature.run(*args, **kwargs)

    def _run_unrecorded(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Run an op of a compiled region."""
        signature = signature_of(func)
        try:
            return self._run(signature, func, types, args, kwargs)
        except BaseException as error:
            positions = {position for position, _, _ in signature.places}
            wrapped = wrap_scalars(error, positions, args)
            if wrapped is None:
                raise
            return self.__torch_dispatch__(func, types, wrapped, kwargs)

    def _arguments_and_time(
        self, call: Call, func: Any, args: Any, kwargs: Any
    ) -> tuple[int | None, int] | None:
        """Return the arguments of an op by their id, and when it begins to run."""
        signature, state = call[:2]
        if signature.collective is not None:
            self._session.guarded(
                "collectives", self._collectives.called, signature.collective, signature.name,
                args, kwargs, call[5],
            )  # fmt: skip
        self._session.begin_recorder_time()
        arguments_id = None
        try:
            with DisableTorchFunction() if _function_modes() else _NOTHING:
                arguments_id = self._intern_arguments(signature, func, args, kwargs)
        except Exception as error:  # noqa: BLE001 - whatever failed here, the op must run
            self._session.fail("arguments", error)
        finally:
            self._session.end_recorder_time()
        try:
            return arguments_id, self._sequence.time_ns(state.number)
        except Exception as error:  # noqa: BLE001 - as above
            self._session.fail("ops", error)
            return None

    def _failed(self, error: BaseException, row: tuple[Any, ...] | None) -> None:
        if row is not None and self._session.on_failed_op is not None:
            self._session.guarded("memory", self._session.on_failed_op, error, row[0], row[3])

    def _stop_after(self, *finished: Any) -> None:
        if self._stops is not None:
            self._stops.after_op(*finished)

    def _is_traced(self, state: ThreadState) -> bool:
        """Return whether an op only traces; forget the nodes that were created by then."""
        traced = not self._session.observes()
        if traced:
            state.sequence_nr = _sequence_nr()
        return traced

    def _begin(self, func: Any, args: Any, kwargs: Any, state: ThreadState) -> Call | None:
        self._session.begin_recorder_time()
        try:
            try:
                signature = SIGNATURES[func._op]  # noqa: SLF001
            except (KeyError, AttributeError):  # seen for the first time, or of higher order
                signature = signature_of(func)
            now = _sequence_nr()
            # The node exists before its op is dispatched (counter - 1). Inside a custom
            # Function's forward gradients are off, and the newest node is the Function's own.
            fresh = now > state.sequence_nr
            state.sequence_nr = now
            created = inside = None
            if fresh and not _grad_enabled():
                inside = now - 1
                fresh = False
            plain = not (_function_modes() or self._session.with_fingerprints)
            tensor: Any = args[0] if signature.alone and args else None
            if plain and (type(tensor) is _Tensor or type(tensor) in PLAIN_TENSORS):
                tensors = self._tensors
                tensor_id = tensors.intern(tensor, state.number)
                try:
                    version = tensor._version  # noqa: SLF001 - has no public name
                except RuntimeError:  # inference mode
                    version = NO_ID
                created = now - 1 if fresh and tensor.requires_grad else None
                storage_id = tensors.storage_of[tensor_id]
                known = self._versions.known
                try:
                    highest = known[storage_id]
                except IndexError:
                    grow(known, storage_id)
                    highest = NO_ID
                if highest == NO_ID != storage_id:
                    known[storage_id] = version  # seen for the first time
                elif highest != version:
                    self._versions.seen(tensor_id, storage_id, version)
                versions = (version,) if version else _UNWRITTEN
                return signature, state, plain, created, inside, (tensor_id,), versions, (), ()
            reader = self._reader
            inputs = reader.read_inputs(signature, args, kwargs, fresh, plain) if plain else None
            requires_grad, ids, found, written, hashes = inputs or reader.read_inputs_no_override(
                signature, args, kwargs, fresh
            )
            if requires_grad:
                created = now - 1
            return signature, state, plain, created, inside, ids, found, written, hashes  # noqa: TRY300
        except Exception as error:  # noqa: BLE001 - whatever failed here, the op must run
            self._session.fail("ops", error)
            return None
        finally:
            self._session.end_recorder_time()

    def _finish(
        self,
        call: Call,
        result: Any,
        started: int,
        error: BaseException | None,
        origin: int,
        arguments_id: int | None,
    ) -> tuple[Any, ...] | None:
        self._session.begin_recorder_time()
        try:
            signature, state, plain, created, inside, taken, versions, written, hashes = call
            if signature.foreach and error is None:
                bump_missed_foreach(written)
            given: Ints
            versions_after: Ints
            hashes_after: Ints = ()
            if plain and type(result) is _Tensor and not written:
                given = (self._tensors.intern(result, state.number, True),)
                try:
                    version = result._version  # noqa: SLF001
                except RuntimeError:  # inference mode
                    version = NO_ID
                versions_after = (version,) if version else _UNWRITTEN
            else:
                given, versions_after, hashes_after = self._reader.read_outputs(
                    signature, result, written
                )
            stacks = self._stacks
            stack_id = None if stacks is None else stacks.capture(2, state)
            region_id, recompute_id = state.regions[-1] if state.regions else _NO_REGION
            of_graph = "backward" if state.running or _graph_task() != -1 else "forward"
            phase = of_graph if recompute_id is None else "recompute"
            self._add_to_step[origin](signature.name, phase, state)
            sequence = self._sequence
            # An emitter, inlined: it saves one call for each op.
            next_number, append = sequence.number, self._append
            sequence.newest = seq = next_number()
            if seq >= sequence.due:
                sequence.on_due(seq)
            row = (
                seq, started, state.number, stack_id,
                signature.name, phase, taken, versions, given, versions_after,
                tuple([tensor_id for tensor_id, _, _ in written]) if written else (),
                hashes, hashes_after, sequence.time_ns(state.number) - started, created,
                state.running[-1][1] if state.running else None,
                state.calls[-1] if state.calls else None,
                region_id, recompute_id, error is not None, arguments_id,
            )  # fmt: skip
            append(row)
            if created is not None:
                self._creators.add(created, row)
                if error is None:
                    self._recent_outputs.remember(result)
            if inside is not None:
                self._creators.custom.setdefault(inside, stack_id)
            if (written or signature.clone) and error is None:
                self._emit_writes(signature, row, written)
        except Exception as own:  # noqa: BLE001
            self._session.fail("ops", own)
            return None
        finally:
            self._session.end_recorder_time()
        return row

    def _emit_writes(
        self, signature: Signature, row: tuple[Any, ...], written: Sequence[Written]
    ) -> None:
        """Record the versions that an op bumped, and a clone that it made for a later write."""
        seq, _, thread, stack_id, name, _, taken, _, given, *_ = row
        if signature.clone and allows_mutation_on_saved_tensors():
            emit_clone(self._session, self._tensors, taken[0], given, seq, thread, stack_id)
        for tensor_id, tensor, before in written:
            if before == NO_ID:
                continue
            after = before + 1 if signature.bumps_later else version_of(tensor)
            if after == before:
                continue
            self._versions.bumped(tensor_id, after)
            storage_id = self._tensors.storage_id(tensor_id)
            self._session.emit(
                VersionBumped, tensor_id, storage_id, before, after, name, seq,
                stack_id=stack_id, thread=thread,
            )  # fmt: skip
