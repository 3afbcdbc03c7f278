"""The saved tensors of nodes: read when a node is first walked, and before it runs."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import torch

from autogradviz.events import NO_ID, TensorReleased, TensorSaved, TensorUnpacked
from autogradviz.recorder.torch_internals.plain_tensors_and_versions import PLAIN_TENSORS
from autogradviz.recorder.torch_internals.private_api import SavedTensor
from autogradviz.support.defer_signals import called_when_freed

if TYPE_CHECKING:
    from autogradviz.recorder.ops.fingerprints import Fingerprints
    from autogradviz.recorder.python_engine.node_creators import CreatorTable
    from autogradviz.recorder.python_engine.save_ids import SaveIds
    from autogradviz.recorder.python_engine.tensor_ids import TensorTable
    from autogradviz.recorder.python_engine.version_table import VersionTable
    from autogradviz.recorder.saved_tensors.save_registry import SaveTable
    from autogradviz.recorder.session import Session, SessionRef
    from autogradviz.recorder.thread_state import ThreadState
    from autogradviz.recorder.torch_internals.saved_slots_of_node import Slots

_Tensor: Final = torch.Tensor
_SavedTensor: Final = SavedTensor

Slot: TypeAlias = tuple[int, str, int | None, int | None, int | None]
"""One saved tensor of one node: save, attribute, index in it, version, fingerprint.

The attribute is "" for a save that went through hooks; the index is that in a slot that holds a
list. A plain tuple, since the garbage collector never untracks a named one.
"""


class NodeSlots:
    """The saved tensors that one node still holds."""

    __slots__ = ("slots",)

    def __init__(self, slots: tuple[Slot, ...]) -> None:
        self.slots = slots


def _on_node_freed(ref: SessionRef[SlotTable], saved: NodeSlots) -> None:
    table = ref.target
    if saved.slots and table is not None:
        table.on_node_freed(saved)


class SlotTable:
    """Records the tensors that nodes save, unpack and release."""

    def __init__(
        self,
        session: Session,
        tensors: TensorTable,
        versions: VersionTable,
        creators: CreatorTable,
        ids: SaveIds,
        saves: SaveTable,
        fingerprints: Fingerprints,
    ) -> None:
        self._session = session
        self._local = session.threads.local
        self._tensors = tensors
        self._versions = versions
        self._creators = creators
        self._ids = ids
        self._saves = saves
        self._hash_of = fingerprints.hash_of
        self._emit_saved = session.emitter(TensorSaved)
        self._emit_released = session.emitter(TensorReleased)
        self._emit_unpacked = session.emitter(TensorUnpacked)
        self._addresses = session.addresses
        self._ref = session.ref(self)
        self.held: Final[dict[int, int]] = {}
        """The tensor of each save without hooks that a node holds."""

    def read(
        self,
        node: Any,
        node_id: int,
        slots: Slots,
        sequence_nr: int | None,
        thread: int,
        stack_id: int | None,
    ) -> NodeSlots | None:
        """Record the tensors that a node saved; return its slots, None if all are empty."""
        saved: list[Slot] = []
        for name, label in slots:
            try:
                raw = getattr(node, name)
            except RuntimeError:  # the graph was freed
                continue
            if raw is None:
                continue
            if type(raw) is not _SavedTensor and isinstance(raw, (tuple, list)):
                for index, slot in enumerate(raw):
                    part = f"{label}[{index}]"
                    self._read_slot(
                        saved, name, index, slot, node_id, sequence_nr, part, thread, stack_id
                    )
            else:
                self._read_slot(
                    saved, name, None, raw, node_id, sequence_nr, label, thread, stack_id
                )
        if saved and self._addresses is not None:
            found = (thread, stack_id)
            if sequence_nr is not None:
                found = self._creators.place_of(sequence_nr, thread)
            stacks: Any = self._session.stacks
            place = found[0], stacks.user_lines.get(found[1], "")
            note = self._addresses.node_saved
            self._session.guarded("addresses", note, node, saved, sequence_nr, place)
        return NodeSlots(tuple(saved)) if saved else None

    def released_when_freed(self, saved: NodeSlots) -> object:
        """Return an object that records, when it is freed, that its node released its tensors."""
        return called_when_freed(partial(_on_node_freed, self._ref, saved))

    def _read_slot(
        self,
        saved: list[Slot],
        attribute: str,
        index: int | None,
        slot: Any,
        node_id: int,
        sequence_nr: int | None,
        label: str,
        thread: int,
        stack_id: int | None,
    ) -> None:
        content = slot.data
        if slot.unpack_hook is not None:
            saved_id, version = self._saves.read_hooked(content, node_id, sequence_nr, label)
            saved.append((saved_id, "", None, version, None))
            return
        if type(content) not in PLAIN_TENSORS and not isinstance(content, _Tensor):
            return
        ids, tensors, creators = self._ids, self._tensors, self._creators
        tensor_id = tensors.intern(content)
        version = saved_hash = None
        if sequence_nr is not None and creators.ops:
            version = creators.version_saved(sequence_nr, tensor_id)
            if self._session.with_fingerprints:
                saved_hash = creators.hash_saved(sequence_nr, tensor_id)
        try:
            seen = content._version  # noqa: SLF001 - has no public name
        except RuntimeError:  # inference mode
            seen = NO_ID
        self._versions.seen(tensor_id, tensors.storage_of[tensor_id], seen)
        if version is None and seen != NO_ID:
            version = seen
        saved_id = ids.count
        ids.count = saved_id + 1
        self._emit_saved(
            thread, stack_id, saved_id, node_id, sequence_nr, label, tensor_id, version, "pytorch",
            None, None, None,
        )  # fmt: skip
        saved.append((saved_id, attribute, index, version, saved_hash))
        self.held[saved_id] = tensor_id

    def read_versions(self, node: Any, node_id: int, saved: NodeSlots, state: ThreadState) -> None:
        """Record the tensors that a node is about to unpack, before PyTorch checks the versions."""
        emit, thread = self._emit_unpacked, state.number
        for saved_id, attribute, index, version, saved_hash in saved.slots:
            if not attribute:
                continue
            raw = getattr(node, attribute)
            try:
                tensor = (raw if index is None else raw[index]).data
            except IndexError:  # a Function that releases each tensor when it has read it
                continue
            if type(tensor) in PLAIN_TENSORS or isinstance(tensor, _Tensor):
                try:
                    seen = tensor._version  # noqa: SLF001 - has no public name
                except RuntimeError:  # inference mode
                    seen = None
                if seen != version and version is not None:
                    state.suspect = node_id
                seen_hash = None if saved_hash is None else self._hash_of(tensor)
                emit(thread, None, saved_id, node_id, version, seen, False, saved_hash, seen_hash)

    def on_node_freed(self, saved: NodeSlots) -> None:
        """Record that a node died with its saved tensors."""
        self._session.always_guarded("release", self.release, saved)

    def release(self, saved: NodeSlots) -> None:
        """Record that a node released its saved tensors."""
        thread = self._local.state.number
        saves = self._saves
        emit = self._emit_released
        slots, saved.slots = saved.slots, ()
        for saved_id, attribute, _, _, _ in slots:
            if attribute:
                self.held.pop(saved_id, None)
                emit(thread, None, saved_id)
            else:  # it went through hooks
                saves.released(saved_id, thread)
