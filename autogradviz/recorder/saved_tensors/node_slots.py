"""Looking at what nodes saved.

NOTE [ Looking at a slot ]
``node._saved_x`` unpacks: it runs hooks, and on a checkpointed region the forward.
``node._raw_saved_x`` is the slot itself; its ``data`` and ``unpack_hook`` run nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias
from weakref import WeakKeyDictionary

import torch

from autogradviz.events import NO_ID, TensorUnpacked
from autogradviz.recorder.engine.node_tag import Kept
from autogradviz.recorder.ids.tensors import PLAIN_TENSORS

if TYPE_CHECKING:
    from autogradviz.recorder.engine.node_tag import NodeTag, Slot
    from autogradviz.recorder.recorder import Recorder

_RAW: Final = "_raw_saved_"
_Tensor: Final = torch.Tensor
_SavedTensor: Final = torch._C._autograd.SavedTensor  # noqa: SLF001 - has no public name

Slots: TypeAlias = tuple[tuple[str, str], ...]
"""The slots of a type of nodes: attributes and labels."""

_known: Final[WeakKeyDictionary[type, Slots]] = WeakKeyDictionary()


def slots_of(kind: type) -> Slots:
    """Return the slots of a type of nodes; looked up once a process."""
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
        self._tell_unpacked = recorder.emitter(TensorUnpacked)

    def look(
        self,
        node: Any,
        tag: NodeTag,
        slots: Slots,
        sequence_nr: int | None,
        thread: int,
        stack_id: int | None,
    ) -> None:
        """Record what a node keeps in its slots."""
        saved: list[Slot] = []
        node_id = tag.node_id
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
                    self._look_at(
                        saved, name, index, slot, node_id, sequence_nr, part, thread, stack_id
                    )
            else:
                self._look_at(saved, name, None, raw, node_id, sequence_nr, label, thread, stack_id)
        if saved:
            tag.saved = Kept(tag.gate, tuple(saved))

    def _look_at(
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
        kept = slot.data
        if slot.unpack_hook is not None:
            saved.append(self._look_behind_hook(kept, node_id, sequence_nr, label))
            return
        if type(kept) not in PLAIN_TENSORS and not isinstance(kept, _Tensor):
            return
        recorder = self._recorder
        saves, tensors = recorder.saves, recorder.tensors
        tensor_id = tensors.number(kept)
        version = saved_hash = None
        if sequence_nr is not None and saves.ops:
            version = saves.version_saved(sequence_nr, tensor_id)
            if recorder.with_fingerprints:
                saved_hash = saves.hash_saved(sequence_nr, tensor_id)
        try:
            seen = kept._version  # noqa: SLF001 - has no public name
        except RuntimeError:  # inference mode
            seen = NO_ID
        recorder.versions.seen(tensor_id, tensors.storage_of[tensor_id], seen)
        if version is None and seen != NO_ID:
            version = seen
        saved_id = saves.count
        saves.count = saved_id + 1
        saves.tell_saved(
            thread, stack_id, saved_id, node_id, sequence_nr, label, tensor_id, version, "pytorch",
            None, None, None,
        )  # fmt: skip
        saved.append((saved_id, attribute, index, version, saved_hash))

    def _look_behind_hook(
        self, kept: Any, node_id: int, sequence_nr: int | None, label: str
    ) -> Slot:
        saves = self._recorder.saves
        save = saves.slot_found(kept, node_id, label, sequence_nr)
        if save is not None:
            return (save.saved_id, "", None, save.version, None)
        # Packed before the recording, or by hooks put on this one slot.
        known = kept if isinstance(kept, _Tensor) else None
        saved_id = saves.new(
            known, packed_by="user", node_id=node_id, sequence_nr=sequence_nr, slot=label
        )
        return (saved_id, "", None, None, None)

    def read_versions(self, node: Any, node_id: int, kept: Kept, thread: int) -> None:
        """Record what a node is about to unpack, before PyTorch compares the versions itself."""
        tell = self._tell_unpacked
        for saved_id, attribute, place, version, saved_hash in kept.slots:
            if not attribute:
                continue
            raw = getattr(node, attribute)
            try:
                tensor = (raw if place is None else raw[place]).data
            except IndexError:  # a Function that lets go of what it has read
                continue
            if type(tensor) in PLAIN_TENSORS or isinstance(tensor, _Tensor):
                try:
                    seen = tensor._version  # noqa: SLF001 - has no public name
                except RuntimeError:  # inference mode
                    seen = None
                found = None if saved_hash is None else self._recorder.hash_of(tensor)
                tell(thread, None, saved_id, node_id, version, seen, False, saved_hash, found)

    def release(self, kept: Kept) -> None:
        """Record that a node gave its saved tensors up."""
        thread = self._recorder.threads.local.state.number
        saves = self._recorder.saves
        tell = saves.tell_released
        slots, kept.slots = kept.slots, ()
        for saved_id, attribute, _, _, _ in slots:
            if attribute:
                tell(thread, None, saved_id)
            else:  # it went through hooks
                saves.released(saved_id, thread)
