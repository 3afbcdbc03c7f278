"""Looking at what nodes saved.

NOTE [ Looking at a slot ]
``node._saved_x`` unpacks: it runs hooks, and on a checkpointed region the forward.
``node._raw_saved_x`` is the slot itself; its ``data`` and ``unpack_hook`` run nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch

from autogradviz.events import NO_ID, TensorUnpacked
from autogradviz.recorder.tensors import version_of

if TYPE_CHECKING:
    from autogradviz.recorder.recorder import Recorder
    from autogradviz.recorder.tags import NodeTag

_RAW: Final = "_raw_saved_"


class SlotTable:
    """Reads nodes' slots: what they keep, when they take it back, when they give it up."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._tell_unpacked = recorder.teller(TensorUnpacked)
        self._names: dict[type, tuple[str, ...]] = {}
        self._labels: dict[tuple[str, int | None], str] = {}

    def look(self, node: Any, tag: NodeTag, sequence_nr: int | None, stack_id: int | None) -> None:
        """Record what a node keeps."""
        kind = type(node)
        names = self._names.get(kind)
        if names is None:
            names = tuple([name for name in dir(kind) if name.startswith(_RAW)])
            self._names[kind] = names
        for name in names:
            try:
                raw = getattr(node, name)
            except RuntimeError:  # the graph was freed
                continue
            if isinstance(raw, (tuple, list)):
                for index, slot in enumerate(raw):
                    self._look_at(tag, name, index, slot, sequence_nr, stack_id)
            elif raw is not None:
                self._look_at(tag, name, None, raw, sequence_nr, stack_id)

    def _look_at(
        self,
        tag: NodeTag,
        attribute: str,
        index: int | None,
        slot: Any,
        sequence_nr: int | None,
        stack_id: int | None,
    ) -> None:
        recorder = self._recorder
        saves = recorder.saves
        label = self._label(attribute, index)
        kept = slot.data
        if slot.unpack_hook is not None:
            save = saves.slot_found(kept, tag.node_id, label, sequence_nr)
            if save is not None:
                tag.saved += ((save.saved_id, "", None, save.version, None),)
            else:  # packed before the recording, or by hooks put on this one slot
                known = kept if isinstance(kept, torch.Tensor) else None
                saved_id = saves.new(
                    known, packed_by="user", node_id=tag.node_id, sequence_nr=sequence_nr,
                    slot=label,
                )  # fmt: skip
                tag.saved += ((saved_id, "", None, None, None),)
            return
        if not isinstance(kept, torch.Tensor):
            return
        tensor_id = recorder.tensors.number(kept)
        version = saved_hash = None
        if sequence_nr is not None:
            version = saves.version_saved(sequence_nr, tensor_id)
            if recorder.with_values:
                saved_hash = saves.hash_saved(sequence_nr, tensor_id)
        seen = version_of(kept)
        recorder.versions.seen(tensor_id, recorder.tensors.storage_of[tensor_id], seen)
        if version is None and seen != NO_ID:
            version = seen
        saved_id = saves.new(
            tensor_id, packed_by="pytorch", node_id=tag.node_id, sequence_nr=sequence_nr,
            slot=label, version=version, stack_id=stack_id,
        )  # fmt: skip
        tag.saved += ((saved_id, attribute, index, version, saved_hash),)

    def _label(self, attribute: str, index: int | None) -> str:
        """Return what users call a slot: "self", "tensors[2]"."""
        label = self._labels.get((attribute, index))
        if label is None:
            label = attribute.removeprefix(_RAW)
            if label == "tensors":  # a custom Function's
                label = "saved_tensors"
            if index is not None:
                label = f"{label}[{index}]"
            self._labels[attribute, index] = label
        return label

    def read_versions(self, node: Any, tag: NodeTag, thread: int) -> None:
        """Record what a node is about to unpack, before PyTorch compares the versions itself."""
        for saved_id, attribute, place, version, saved_hash in tag.saved:
            if not attribute:
                continue
            raw = getattr(node, attribute)
            kept = (raw if place is None else raw[place]).data
            if isinstance(kept, torch.Tensor):
                seen = version_of(kept)
                self._tell_unpacked(
                    thread, None, saved_id, tag.node_id, version,
                    None if seen == NO_ID else seen, False, saved_hash,
                    None if saved_hash is None else self._recorder.hash_of(kept),
                )  # fmt: skip

    def release(self, tag: NodeTag) -> None:
        """Record that a node gave its saved tensors up."""
        thread = self._recorder.threads.state().number
        for saved_id, *_ in tag.saved:
            self._recorder.saves.released(saved_id, thread)
        tag.saved = ()
