"""Saved tensors: the node and op that saved each one, its unpacks and its release."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from autogradviz.analysis.types import Op, SavedTensor, Unpack
from autogradviz.event_log.rows_as_named_tuples import rows_of
from autogradviz.event_log.saved_tensor_lifetimes import (
    read_unpacks,
    release_of_recomputed,
    times_of_compiled_saves,
)
from autogradviz.events import (
    BackwardEnded,
    MutationCloned,
    SavedStorageFreed,
    SlotSeen,
    TensorMoved,
    TensorReleased,
    TensorSaved,
)
from autogradviz.support.fast_dataclass_constructor import maker

if TYPE_CHECKING:
    from collections.abc import Callable

    from autogradviz.analysis.tensor_and_module_tables import Tensors
    from autogradviz.event_log import Log
    from autogradviz.event_log.match_ops_to_nodes import OpNodeMatches
    from autogradviz.event_log.stacks import Stacks


_make_saved = maker(SavedTensor)
_make_unpack: Callable[..., Unpack] = maker(Unpack)


def build_saved(
    log: Log,
    tensors: Tensors,
    stacks: Stacks,
    matches: OpNodeMatches,
    op_by_seq: dict[int, Op],
) -> dict[int, SavedTensor]:
    """Return all saved tensors by id, in the order in which the recorder saw them."""
    slots: dict[int, tuple[int | None, str | None]] = {
        saved_id: (node_id, slot)
        for saved_id, node_id, slot in log.fields(SlotSeen, "saved_id", "node_id", "slot")
    }
    released = {
        saved_id: (seq, time_ns)
        for saved_id, seq, time_ns in log.fields(TensorReleased, "saved_id", "seq", "time_ns")
    }
    unpacks = read_unpacks(log)
    cloned = {event.tensor_id: event.seq for event in log.of(MutationCloned)}  # the last time
    copied = {event.saved_id for event in log.of(SavedStorageFreed)}
    copied.update(event.saved_id for event in log.of(TensorMoved))
    ran = times_of_compiled_saves(log)
    saved: dict[int, SavedTensor] = {}
    for event in rows_of(log, TensorSaved):
        saved_id = event.saved_id
        node_id, slot = slots.get(saved_id, (event.node_id, event.slot))
        released_seq, released_ns = released.get(saved_id, (None, None))
        op_seq = matches.op_of_save(node_id, event.thread, event.sequence_nr)
        op = None if op_seq is None else op_by_seq.get(op_seq)
        if node_id is None and op is not None:
            node_id = op.node_id
        saved_seq, saved_ns = (
            ran.get(node_id, (event.seq, event.time_ns)) if op is None else (op.seq, op.time_ns)
        )
        saved[saved_id] = _make_saved(
            saved_id=saved_id,
            node_id=node_id,
            slot=slot,
            tensor=tensors[event.tensor_id],
            version=event.version,
            packed_by=event.packed_by,
            region_id=event.region_id,
            recompute_id=event.recompute_id,
            position=event.position,
            saved_seq=saved_seq,
            released_seq=released_seq,
            unpacks=tuple([_make_unpack(*each) for each in unpacks.get(saved_id, ())]),
            op=op,
            location=stacks.location(event.stack_id) if op is None else op.location,
            saved_ns=saved_ns,
            released_ns=released_ns,
            cloned=event.packed_by == "allow_mutation"
            and cloned.get(event.tensor_id, -1) > event.seq,
            copied=saved_id in copied,
        )
    ended = {event.backward_id: event.seq for event in log.of(BackwardEnded)}
    return _complete_recomputed(saved, ended)


def _complete_recomputed(
    saved: dict[int, SavedTensor], ended: dict[int, int]
) -> dict[int, SavedTensor]:
    """Add slot and release to recomputed saves, from the forward's saves at the same positions.

    The nodes of a recomputation are not recorded. A tensor that it saves replaces the forward's
    save at the same position until that is unpacked; beyond the last position it is dropped.
    If both runs saved with the same op at a position, they filled the same slot.
    """
    forward: dict[tuple[int | None, int | None], SavedTensor] = {
        (tensor.region_id, tensor.position): tensor
        for tensor in saved.values()
        if tensor.recompute_id is None and tensor.position is not None
    }
    for saved_id, tensor in saved.items():
        if tensor.packed_by == "recompute" and tensor.position is not None:
            original = forward.get((tensor.region_id, tensor.position))
            saved[saved_id] = replace(
                tensor,
                slot=tensor.slot
                or (original.slot if original and fill_one_slot(original, tensor) else None),
                released_seq=tensor.released_seq or _released_seq(original, tensor, ended),
            )
    return saved


def fill_one_slot(original: SavedTensor, tensor: SavedTensor) -> bool:
    """Return whether two saves at one position of a region, forward and again, are of one slot."""
    if original.op is None:
        return False
    if tensor.op is None:  # the recomputation stopped while this op was packing its inputs
        return original.tensor.shape == tensor.tensor.shape
    return original.op.name == tensor.op.name


def _released_seq(
    original: SavedTensor | None, tensor: SavedTensor, ended: dict[int, int]
) -> int | None:
    """Return when a recomputed tensor was released."""
    if original is None:
        return tensor.saved_seq
    unpacks = ((each.seq, each.backward_id) for each in original.unpacks)
    return release_of_recomputed(tensor.saved_seq, original.released_seq, unpacks, ended)


def find_stored_ids(log: Log, saved: dict[int, SavedTensor]) -> frozenset[int]:
    """Return the ids of the storages that were saved or cloned: those that have a history."""
    found = {tensor.tensor.storage_id for tensor in saved.values()}
    found |= {event.storage_id for event in log.of(MutationCloned)}
    return frozenset(storage_id for storage_id in found if storage_id is not None)
