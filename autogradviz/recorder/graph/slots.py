"""Looking at what nodes saved.

NOTE [ Looking at a slot ]
``node._saved_x`` unpacks: it runs hooks, and on a checkpointed region the forward.
``node._raw_saved_x`` is the slot itself; its ``data`` and ``unpack_hook`` run nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

import torch

from autogradviz.events import NO_ID, TensorUnpacked
from autogradviz.recorder.tables.tensors import version_of

if TYPE_CHECKING:
    from autogradviz.recorder.graph.tags import NodeTag, Slot
    from autogradviz.recorder.recorder import Recorder

_RAW: Final = "_raw_saved_"
_known: Final[WeakKeyDictionary[type, tuple[tuple[str, str], ...]]] = WeakKeyDictionary()


def _slots_of(kind: type) -> tuple[tuple[str, str], ...]:
    """Return the slots of a type of nodes: attributes and labels; looked up once a process."""
    names = _known.get(kind)
    if names is None:
        names = _known[kind] = tuple(
            [(name, _label(name)) for name in dir(kind) if name.startswith(_RAW)]
        )
    return names


def _label(attribute: str) -> str:
    """Return what users call a slot."""
    label = attribute.removeprefix(_RAW)
    return "saved_tensors" if label == "tensors" else label  # a custom Function's


class SlotTable:
    """Reads nodes' slots: what they keep, when they take it back, when they give it up."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._tell_unpacked = recorder.teller(TensorUnpacked)
        self._names: dict[type, tuple[tuple[str, str], ...]] = {}

    def look(
        self, node: Any, tag: NodeTag, sequence_nr: int | None, thread: int, stack_id: int | None
    ) -> None:
        """Record what a node keeps."""
        kind = type(node)
        names = self._names.get(kind)
        if names is None:
            names = self._names[kind] = _slots_of(kind)
        saved: list[Slot] = []
        for name, label in names:
            try:
                raw = getattr(node, name)
            except RuntimeError:  # the graph was freed
                continue
            if isinstance(raw, (tuple, list)):
                for index, slot in enumerate(raw):
                    where = (tag.node_id, sequence_nr, f"{label}[{index}]")
                    self._look_at(saved, name, index, slot, where, thread, stack_id)
            elif raw is not None:
                where = (tag.node_id, sequence_nr, label)
                self._look_at(saved, name, None, raw, where, thread, stack_id)
        if saved:
            tag.saved = tuple(saved)

    def _look_at(
        self,
        saved: list[Slot],
        attribute: str,
        index: int | None,
        slot: Any,
        where: tuple[int, int | None, str],
        thread: int,
        stack_id: int | None,
    ) -> None:
        recorder = self._recorder
        saves = recorder.saves
        kept = slot.data
        node_id, sequence_nr, label = where
        if slot.unpack_hook is not None:
            save = saves.slot_found(kept, node_id, label, sequence_nr)
            if save is not None:
                saved.append((save.saved_id, "", None, save.version, None))
            else:  # packed before the recording, or by hooks put on this one slot
                known = kept if isinstance(kept, torch.Tensor) else None
                saved_id = saves.new(
                    known, packed_by="user", node_id=node_id, sequence_nr=sequence_nr, slot=label
                )
                saved.append((saved_id, "", None, None, None))
            return
        if not isinstance(kept, torch.Tensor):
            return
        tensors, versions = recorder.tensors, recorder.versions
        tensor_id = tensors.number(kept)
        version = saved_hash = None
        if sequence_nr is not None:
            version = saves.version_saved(sequence_nr, tensor_id)
            if recorder.with_values:
                saved_hash = saves.hash_saved(sequence_nr, tensor_id)
        seen = version_of(kept)
        versions.seen(tensor_id, tensors.storage_of[tensor_id], seen)
        if version is None and seen != NO_ID:
            version = seen
        saved_id = saves.found(tensor_id, version, *where, thread, stack_id)
        saved.append((saved_id, attribute, index, version, saved_hash))

    def read_versions(self, node: Any, tag: NodeTag, thread: int) -> None:
        """Record what a node is about to unpack, before PyTorch compares the versions itself."""
        node_id = tag.node_id
        for saved_id, attribute, place, version, saved_hash in tag.saved:
            if not attribute:
                continue
            raw = getattr(node, attribute)
            kept = (raw if place is None else raw[place]).data
            if isinstance(kept, torch.Tensor):
                seen = version_of(kept)
                self._tell_unpacked(
                    thread, None, saved_id, node_id, version,
                    None if seen == NO_ID else seen, False, saved_hash,
                    None if saved_hash is None else self._recorder.hash_of(kept),
                )  # fmt: skip

    def release(self, tag: NodeTag) -> None:
        """Record that a node gave its saved tensors up."""
        thread = self._recorder.threads.local.state.number
        released = self._recorder.saves.released
        for slot in tag.saved:
            released(slot[0], thread)
        tag.saved = ()
