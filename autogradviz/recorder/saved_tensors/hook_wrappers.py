"""Wrappers around pack and unpack hooks that call the original and record it."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import torch

from autogradviz.events import NO_ID, SavedStorageFreed, TensorMoved, TensorUnpacked
from autogradviz.recorder.ops.fingerprints import below_autograd
from autogradviz.recorder.saved_tensors.tensors_in_packed_objects import PackedTensors
from autogradviz.recorder.torch_internals.keep_dynamo_out import skip_frame
from autogradviz.recorder.torch_internals.plain_tensors_and_versions import (
    PLAIN_TENSORS,
    version_of,
)
from autogradviz.recorder.torch_internals.private_api import DisableTorchFunction

if TYPE_CHECKING:
    from autogradviz.events import PackedBy
    from autogradviz.recorder.engine_interface import ContentHashes, Region, TensorIds
    from autogradviz.recorder.saved_tensors.save_registry import SaveTable
    from autogradviz.recorder.saved_tensors.tensors_in_packed_objects import HookedSave
    from autogradviz.recorder.session import Session, SessionRef

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
