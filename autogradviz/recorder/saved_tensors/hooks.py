"""Hooks on saved tensors: those of the recorder around those of users."""

from __future__ import annotations

import weakref
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import torch
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks

from autogradviz.events import (
    NO_ID,
    HooksDisabled,
    HooksEntered,
    HooksLeft,
    PackedBy,
    SavedStorageFreed,
    TensorMoved,
    TensorUnpacked,
)
from autogradviz.recorder.callable_names import function_name
from autogradviz.recorder.ops.hashes_norms_and_draws import below_autograd
from autogradviz.recorder.saved_tensors.registry_of_saves import PackedTensors
from autogradviz.recorder.torch_internals.keep_dynamo_out import skip_dynamo_recursive, skip_frame
from autogradviz.recorder.torch_internals.patches import patched, patched_for_compilers_too
from autogradviz.recorder.torch_internals.private_api import (
    AUTOGRAD_C,
    DisableTorchFunction,
    SwapWithCloned,
    current,
    top_saved_tensors_hooks,
)
from autogradviz.recorder.torch_internals.wrapper_tensors import PLAIN_TENSORS, version_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.recorder.engine_interface import ContentHashes, Region, TensorIds
    from autogradviz.recorder.saved_tensors.registry_of_saves import HookedSave, SaveTable
    from autogradviz.recorder.session import Session, SessionRef


# --- wrappers around pack and unpack hooks that call the original and record it -------------------


_MAY_COPY: Final = frozenset({"user", "offload"})
"""The kinds of pairs that may keep a copy of the tensor instead of the tensor."""

_CHECKPOINT: Final = frozenset({"checkpoint", "recompute"})
"""The kinds of pairs that belong to a checkpoint region."""

Unpack: TypeAlias = "tuple[HookedSave, int | None]"
"""A save that is being unpacked, and the node that runs."""


class TracingPackHook:
    """A pack hook that calls the original and records the save."""

    __slots__ = ("_count", "_counts", "_packed_by", "_region", "_tracer", "hook")

    def __init__(
        self,
        tracer: SessionRef[HookTracer],
        hook: Any,
        packed_by: PackedBy,
        region: Region,
    ) -> None:
        self._tracer = tracer
        self.hook = hook
        self._packed_by = packed_by
        self._region = region
        self._counts = packed_by in _CHECKPOINT
        self._count = 0

    @skip_frame
    def __call__(self, tensor: torch.Tensor) -> Any:
        """Pack a tensor."""
        tracer = self._tracer.target
        if tracer is None:
            return self.hook(tensor)
        session = tracer.session
        save = session.guarded("saved tensors", self._pack, tracer, tensor)
        state = session.always_guarded("saved tensors", session.enter_hook)
        try:
            result = self.hook(tensor)
        except BaseException:
            raised = session.guarded("saved tensors", tracer.id_of, tensor)
            self._leave(session, state, NO_ID if raised is None else raised)
            raise
        self._leave(session, state, NO_ID)
        if save is not None:
            # Guarded, as the hook may have ended the recording, or forked this process.
            session.guarded("saved tensors", tracer.saves.packed, save, result)
            if self._packed_by in _MAY_COPY:
                session.guarded("saved tensors", _watch_storage, save, tensor)
            if self._packed_by == "user":
                session.guarded("saved tensors", tracer.read_packed, save, result, tensor)
            if self._packed_by == "offload":
                session.guarded(
                    "saved tensors", tracer.emit_moved, save.saved_id, tensor, _copy_in(result)
                )
        return result

    def _leave(self, session: Session, state: Any, raised: int) -> None:
        if state is not None:
            session.always_guarded("saved tensors", session.leave_hook, state, raised)

    def _pack(self, tracer: HookTracer, tensor: torch.Tensor) -> HookedSave:
        position = None
        if self._counts:
            position = self._count
            self._count += 1
        with DisableTorchFunction():
            return tracer.saves.packing(tensor, self._packed_by, self._region, position)


class TracingUnpackHook:
    """An unpack hook that calls the original and records the unpack.

    It lives as long as the graph, so it holds nothing but the original hook and a reference that is
    cleared at the end of the recording.
    """

    __slots__ = ("_offload", "_tracer", "hook")

    def __init__(self, tracer: SessionRef[HookTracer], hook: Any, packed_by: PackedBy) -> None:
        self._tracer = tracer
        self.hook = hook
        self._offload = packed_by == "offload"

    @skip_frame
    def __call__(self, packed: Any) -> Any:
        """Unpack a tensor."""
        tracer = self._tracer.target
        if tracer is None:
            return self.hook(packed)
        guarded = tracer.session.guarded
        found = guarded("saved tensors", tracer.begin_unpack, packed)
        if found is None:
            return self.hook(packed)
        try:
            result = self.hook(packed)
        except BaseException:
            guarded("saved tensors", tracer.emit_unpacked, found, packed, None, self._offload)
            raise
        guarded("saved tensors", tracer.emit_unpacked, found, packed, result, self._offload)
        return result


WRAPPERS: Final[set[type]] = {TracingPackHook, TracingUnpackHook}
"""The classes of wrappers, also those of C++; each has the original as its attribute ``hook``."""


class HookTracer:
    """Records the packs and unpacks of wrapped hooks."""

    def __init__(
        self,
        session: Session,
        tensors: TensorIds,
        saves: SaveTable,
        fingerprints: ContentHashes,
    ) -> None:
        self.session = session
        self.saves = saves
        self._intern = tensors.intern
        self._local = session.threads.local
        self._emit_unpacked = session.emitter(TensorUnpacked)
        self._hash_of = fingerprints.hash_of
        self._packed_tensors = PackedTensors(session, tensors, fingerprints)
        self.ref = session.ref(self)
        self._wrap_checkpoint = session.engine.wrap_checkpoint_hooks(self)

    def wrap(self, pack: Any, unpack: Any, packed_by: PackedBy, region: Region) -> tuple[Any, Any]:
        """Return wrappers around a pair of hooks that record what the hooks do.

        Args:
            pack: the pack hook.
            unpack: the unpack hook.
            packed_by: the kind of the pair.
            region: the region and the recomputation in which the pair packs.
        """
        if packed_by in _CHECKPOINT:
            return self._wrap_checkpoint(pack, unpack, packed_by, region)
        return self.wrap_in_python(pack, unpack, packed_by, region)

    def wrap_in_python(
        self, pack: Any, unpack: Any, packed_by: PackedBy, region: Region
    ) -> tuple[Any, Any]:
        """Return wrappers in Python."""
        packing = TracingPackHook(self.ref, pack, packed_by, region)
        return packing, TracingUnpackHook(self.ref, unpack, packed_by)

    def id_of(self, tensor: torch.Tensor) -> int:
        """Return a tensor's id."""
        with DisableTorchFunction():
            return self._intern(tensor)

    def read_packed(self, save: HookedSave, result: Any, tensor: torch.Tensor) -> None:
        """Remember the tensors that a user's pack hook returned for a save."""
        with DisableTorchFunction():
            save.packed = self._packed_tensors.read(result, tensor)

    def begin_unpack(self, packed: Any) -> Unpack | None:
        """Find the save of a packed object, and record writes to its packed tensors."""
        run = self.session.engine.innermost_run()
        node_id = None if run is None else run[1]
        save = self.saves.find(packed, node_id)
        if save is None:
            return None
        if save.storage is not None:
            if save.storage() is None:
                self.session.emit(SavedStorageFreed, save.saved_id)
            save.storage = None  # what was unpacked may have its memory again
        if save.packed:
            with DisableTorchFunction():
                self._packed_tensors.emit_written(save)
        return save, node_id

    def emit_unpacked(
        self,
        found: Unpack,
        packed: Any,
        result: Any,
        offload: bool,  # noqa: FBT001
    ) -> None:
        """Record an unpack; ``result`` is no tensor if it failed."""
        save, node_id = found
        failed = not isinstance(result, torch.Tensor)
        seen_hash = None
        if self.session.with_fingerprints and not failed:
            with DisableTorchFunction():
                seen_hash = self._hash_of(result)
        save.unpacked += 1
        original = save.original() if save.original is not None else None
        seen = NO_ID if original is None else version_of(original)
        self._emit_unpacked(
            self._local.state.number, self.session.stack_id(), save.saved_id, node_id,
            save.version, None if seen == NO_ID else seen, failed, save.saved_hash, seen_hash,
        )  # fmt: skip
        if offload and not failed:
            self.emit_moved(save.saved_id, _copy_in(packed), result)

    def emit_moved(
        self, saved_id: int, source: torch.Tensor | None, target: torch.Tensor | None
    ) -> None:
        """Record that ``save_on_cpu`` copied a tensor, if it did not keep it as it was."""
        if source is None or target is None:
            return
        with DisableTorchFunction(), below_autograd():
            if self._intern(target) == self._intern(source):
                return
            nbytes = target.numel() * target.element_size()
            pinned = (target if target.device.type == "cpu" else source).is_pinned()
            self.session.emit(TensorMoved, saved_id, str(target.device), nbytes, pinned)


def _watch_storage(save: HookedSave, tensor: torch.Tensor) -> None:
    """Keep a weak reference to the storage of a tensor that was packed."""
    if type(tensor) in PLAIN_TENSORS and tensor.layout is torch.strided:
        save.storage = weakref.ref(tensor.untyped_storage())


def _copy_in(packed: Any) -> torch.Tensor | None:
    """Return the copy that ``save_on_cpu`` packed with a device, None if it made none."""
    pair = type(packed) is tuple and len(packed) == 2  # noqa: PLR2004
    return packed[1] if pair and isinstance(packed[1], torch.Tensor) else None


# --- saved-tensor hooks that were disabled, as ``torch.func`` transforms do -----------------------


@contextmanager
def observe_disabled_hooks(session: Session) -> Iterator[None]:
    """Record calls that disable saved-tensor hooks, while the context is open."""
    original = current("_C._autograd._saved_tensors_hooks_disable")

    def record(message: str) -> None:
        session.emit(HooksDisabled, str(message), stack_id=session.stack_id())

    @skip_frame
    def disable(message: str, *rest: Any) -> Any:
        result = original(message, *rest)
        session.guarded("saved tensors", record, message)
        return result

    with patched(AUTOGRAD_C, _saved_tensors_hooks_disable=disable):
        yield


# --- wrap entered hooks ---------------------------------------------------------------------------
#
# Pairs of saved-tensor hooks: every pair that a program enters is wrapped while it is entered.
#
# The recorder pushes no pair of its own: that would disable PyTorch's version check. A pair that
# exists anyway (a user's, checkpoint's, recomputation's, offload's, allow-mutation's) is wrapped
# when it is pushed: it does the same as before, and its packs and unpacks are recorded.


Plan: TypeAlias = tuple[PackedBy, "int | None", "int | None"]
"""The kind of a pair, and the region and recomputation in which it packs."""


class PairHandler(Protocol):
    """Records the entries and exits of one kind of pairs."""

    def plan(self, hooks: Any) -> Plan:
        """Return the purpose of a pair that is about to be entered."""

    def on_enter(self, hooks: Any, plan: Plan) -> None:
        """Record that a pair was entered."""

    def on_exit(self, hooks: Any, error: type[BaseException] | None) -> None:
        """Record that a pair is about to be left, by an exception or without one."""


class HookPairTable:
    """Assigns ids to the pairs of users, of offloading and of allow-mutation."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._count = 0
        self._open: dict[int, list[int]] = {}  # entered pairs by the address of their object

    def plan(self, hooks: saved_tensors_hooks) -> Plan:
        """Return the purpose of a pair that is about to be entered."""
        region = self._session.threads.local.state.region
        if isinstance(hooks, SwapWithCloned):
            return "allow_mutation", *region
        if isinstance(hooks, save_on_cpu):
            return "offload", *region
        return "user", *region

    def on_enter(self, hooks: Any, plan: Plan) -> None:
        """Record that a pair was entered."""
        name = _LIBRARY_PAIRS.get(type(hooks)) or function_name(hooks.pack_hook)
        self._session.emit(
            HooksEntered, self._count, plan[0], name, stack_id=self._session.stack_id()
        )
        self._open.setdefault(id(hooks), []).append(self._count)
        self._count += 1

    def on_exit(self, hooks: Any, _error: type[BaseException] | None) -> None:
        """Record that a pair is left."""
        pairs = self._open.get(id(hooks))
        if pairs:
            self._session.emit(HooksLeft, pairs.pop())
            if not pairs:
                del self._open[id(hooks)]


_LIBRARY_PAIRS: Final[dict[Any, str]] = {
    save_on_cpu: "save_on_cpu",
    SwapWithCloned: "allow_mutation_on_saved_tensors",
}


def _innermost_pack_hook() -> Any:
    pair = top_saved_tensors_hooks(True)
    return None if pair is None else pair[0]


@contextmanager
def observe_hook_pairs(
    session: Session, tracer: HookTracer, pairs: PairHandler, handlers: dict[type, PairHandler]
) -> Iterator[None]:
    """Wrap every pair of saved-tensor hooks that is entered while the context is open.

    Args:
        session: of the recording.
        tracer: records packs and unpacks.
        pairs: records entries and exits of all other classes than those of ``handlers``.
        handlers: record entries and exits of the pairs of some classes.
    """
    enter, leave = saved_tensors_hooks.__enter__, saved_tensors_hooks.__exit__

    @skip_dynamo_recursive
    def handler_of(hooks: Any) -> PairHandler:
        of_kind = (each for kind, each in handlers.items() if issubclass(type(hooks), kind))
        return next(of_kind, pairs)

    @skip_frame
    def wrapped_enter(hooks: Any) -> Any:
        handler = handler_of(hooks)
        plan = session.guarded("saved tensors", handler.plan, hooks)
        if plan is None:
            return enter(hooks)
        pack, unpack = hooks.pack_hook, hooks.unpack_hook
        wrappers = session.always_guarded(
            "saved tensors", tracer.wrap, pack, unpack, plan[0], plan[1:]
        )
        if wrappers is None:
            return enter(hooks)
        tracing, unpacking = wrappers

        # No ExitStack: Dynamo would compile its methods.
        try:
            hooks.pack_hook = tracing
            hooks.unpack_hook = unpacking
            try:
                result = enter(hooks)
            finally:
                hooks.pack_hook, hooks.unpack_hook = pack, unpack
            session.guarded("checkpoint", handler.on_enter, hooks, plan)
        except BaseException as error:
            # Ctrl-C may come after the push: the with block is neither entered nor left then.
            if _innermost_pack_hook() is tracing:
                leave(hooks, type(error), error, error.__traceback__)
            raise
        return result

    @skip_frame
    def wrapped_leave(hooks: Any, *error: Any) -> Any:
        try:
            handler = handler_of(hooks)
            session.guarded("checkpoint", handler.on_exit, hooks, (*error, None)[0])
        finally:
            leave(hooks, *error)

    with (
        patched(saved_tensors_hooks, __enter__=wrapped_enter, __exit__=wrapped_leave),
        patched_for_compilers_too(AUTOGRAD_C, _top_saved_tensors_default_hooks=_original_pair),
    ):
        yield


@skip_dynamo_recursive
def _original_pair(*args: Any) -> Any:
    """Return the innermost pair as it was entered.

    AOTAutograd asks for it: it inlines a pair of two ``GraphModule``s, and Dynamo guards it by
    identity. PyTorch itself calls the wrappers.
    """
    pair: Any = top_saved_tensors_hooks(*args)
    return pair and tuple([each.hook if type(each) in WRAPPERS else each for each in pair])
