"""Saved tensors of nodes: their ids, and clones before a write."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import torch
import torch.autograd.graph

from autogradviz.events import NO_ID, MutationCloned, TensorReleased, TensorSaved, TensorUnpacked
from autogradviz.recorder.torch_internals.private_api import SavedTensor, get_sequence_nr
from autogradviz.recorder.torch_internals.wrapper_tensors import PLAIN_TENSORS, version_of
from autogradviz.support.defer_and_redeliver_signals import called_when_freed

if TYPE_CHECKING:
    from types import FrameType

    from autogradviz.events import PackedBy
    from autogradviz.recorder.engine_interface import FunctionFacts, Region
    from autogradviz.recorder.ops.hashes_norms_and_draws import Fingerprints
    from autogradviz.recorder.python_engine.ops_that_created_nodes import CreatorTable
    from autogradviz.recorder.python_engine.tensor_ids import TensorTable
    from autogradviz.recorder.python_engine.version_table import VersionTable
    from autogradviz.recorder.saved_tensors.registry_of_saves import SaveTable
    from autogradviz.recorder.session import Session, SessionRef
    from autogradviz.recorder.thread_state import ThreadState
    from autogradviz.recorder.torch_internals.nodes import Slots


# --- the saved tensors of nodes: read when a node is first walked, and before it runs -------------


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


# --- ids of saves; saves through hooks are recorded as they are packed ----------------------------


class SaveIds:
    """Assigns ids to saves. All saves through hooks are kept by ``SaveTable``, none here."""

    def __init__(self, session: Session, tensors: TensorTable, functions: FunctionFacts) -> None:
        self._session = session
        self._local = session.threads.local
        self._intern = tensors.intern
        self._functions = functions
        self._emit = session.emitter(TensorSaved)
        self.count = 0
        """The number of saves so far, which is the id of the next one."""

    def next_id(self) -> int:
        """Return the id of a new save."""
        saved_id = self.count
        self.count = saved_id + 1
        return saved_id

    def record_packing(
        self, tensor: torch.Tensor, packed_by: PackedBy, region: Region, position: int | None
    ) -> tuple[int, int | None, int]:
        """Record a save; return its id, the tensor's version and the node's sequence number."""
        sequence_nr = get_sequence_nr() - 1
        stack_id = self._functions.stack_of(sequence_nr)
        if stack_id is None:
            stack_id = self._session.stack_id()
        found = version_of(tensor)
        version = None if found == NO_ID else found
        if self._session.addresses is not None:
            stacks: Any = self._session.stacks
            line = stacks.user_lines.get(stack_id, "")
            note = self._session.addresses.packed
            state = self._local.state
            self._session.guarded("addresses", note, tensor, packed_by, state, line)
        saved_id = self.next_id()
        self._emit(
            self._local.state.number, stack_id, saved_id, None, sequence_nr, None,
            self._intern(tensor), version, packed_by, *region, position,
        )  # fmt: skip
        return saved_id, version, sequence_nr

    def take_released(self) -> tuple[int, ...]:
        """Return nothing: a node that dies releases its saves at once (``NodeSlots``)."""
        return ()

    def discard_dead(self, packed: Any) -> None:
        """Do nothing: no saves are kept here."""

    def release(self, tensor: torch.Tensor) -> None:
        """Do nothing: no tensors are referred to here."""

    def prune(self, first_saved_id: int) -> None:
        """Do nothing: no saves are kept here."""


# --- clones that ``allow_mutation_on_saved_tensors`` makes before a write -------------------------


_GRAPH_FILE: Final = torch.autograd.graph.__file__
_DEPTH: Final = 12  # frames between the clone and the mode that makes it


def emit_clone(
    session: Session,
    tensors: TensorTable,
    source: int,
    outputs: tuple[int, ...],
    seq: int,
    thread: int,
    stack_id: int | None,
) -> None:
    """Record that an op which cloned a tensor did so for a write, if it did.

    Args:
        session: of the recording.
        tensors: of the recording.
        source: id of the cloned tensor.
        outputs: ids of the op's results.
        seq: of the op's ``OpCalled``.
        thread: of the op.
        stack_id: of the op.
    """
    # allow_mutation_on_saved_tensors clones in a function of its own, called by its mode.
    frame: FrameType | None = sys._getframe(3)  # noqa: SLF001 - the documented way
    for _ in range(_DEPTH):
        if frame is None:
            return
        code = frame.f_code
        if code.co_name == "maybe_clone" and code.co_filename == _GRAPH_FILE:
            break
        frame = frame.f_back
    else:
        return
    storage_id = tensors.storage_id(source)
    session.emit(
        MutationCloned, source, storage_id, outputs[0], seq, stack_id=stack_id, thread=thread
    )
