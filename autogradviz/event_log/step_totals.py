"""Totals of each training step: the most bytes saved for backward, and the norm of the gradients.

The bytes are the same as those of ``analysis.memory``, which has the definition. They are computed
here from rows in linear time, so that a file can have them and the picture of a run can show them
for all ranks.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from math import hypot, inf
from typing import TYPE_CHECKING, Final, NamedTuple

from autogradviz.event_log.match_ops_to_nodes import match_ops_to_nodes
from autogradviz.event_log.rows_as_named_tuples import rows_of
from autogradviz.event_log.saved_tensor_lifetimes import (
    Change,
    read_resizes,
    read_unpacks,
    release_of_recomputed,
    sum_bytes,
    times_of_compiled_saves,
)
from autogradviz.event_log.stacks import Stacks
from autogradviz.event_log.training_steps import STEP_KINDS, TrainingSteps
from autogradviz.events import (
    BackwardEnded,
    Event,
    GradAccumulated,
    LocalGradientNormRead,
    MutationCloned,
    NodeSeen,
    NodeStarted,
    NormRead,
    OpCalled,
    ParameterSeen,
    RecordingStarted,
    RegionRan,
    SavedStorageFreed,
    SlotSeen,
    StepNormRead,
    StorageResized,
    TensorMoved,
    TensorReleased,
    TensorSaved,
    TensorSeen,
    TensorUnpacked,
    WholeParameterSeen,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from autogradviz.event_log.log import Log

TOTALED: Final[tuple[type[Event], ...]] = (
    *STEP_KINDS, ParameterSeen, TensorSeen, OpCalled, MutationCloned, NodeSeen, TensorSaved,
    SlotSeen, RecordingStarted, RegionRan, SavedStorageFreed, TensorMoved, TensorReleased,
    TensorUnpacked, NodeStarted, GradAccumulated, StepNormRead, LocalGradientNormRead,
    WholeParameterSeen, StorageResized, *Stacks.KINDS,
)  # fmt: skip
"""The kinds of events that the totals are computed from."""


_REPLICATE: Final = "Replicate()"


class StepTotals(NamedTuple):
    """Totals of the steps that ended, one value for each step."""

    steps: tuple[int, ...]  # from 0
    saved_nbytes: tuple[int | None, ...]  # the most; None if nothing changed, or is not recorded
    gradient_norms: tuple[float | None, ...]  # infinite if one is not finite; None if unknown
    are_parts: bool = False  # the norms are those of this rank's parts of some gradients


def step_totals(log: Log, round_length: int | None = None) -> StepTotals:
    """Return the totals of the steps of a log.

    The norm of the gradients is the square root of the sum of squares over all leaves that got a
    gradient in the step. It is known if the norms of all of them were read after the last backward
    that reached them. Of a gradient that is a ``DTensor``, the part that this rank holds counts;
    it is not known if that is a term of a sum.

    Args:
        log: the recording.
        round_length: the number of parts in a step, if the other ranks of a run tell it.
    """
    log.decode(*TOTALED)
    found = TrainingSteps(log)
    steps = [step for step in found.grouped(round_length or found.round_length) if step.ended]
    ends = [step.end_seq for step in steps]
    return StepTotals(
        steps=tuple(step.number for step in steps),
        saved_nbytes=_peaks(_saved_bytes(log), ends) if ends else (),
        gradient_norms=_gradient_norms(log, ends),
        are_parts=any(
            placement != _REPLICATE
            for each in rows_of(log, LocalGradientNormRead)
            for placement in each.placements
        ),
    )


# --- saved bytes ------------------------------------------------------------------------------


class _Saved(NamedTuple):
    """One saved tensor: storage, bytes, and when it was saved and released."""

    seq: int
    time_ns: int
    released: int | None
    region: tuple[int | None, int | None]  # region, and position in it
    is_forward: bool  # at a position of a region, and saved by its forward
    is_recomputed: bool
    is_held: bool
    storage_id: int | None
    nbytes: int  # of the storage


def _saved_bytes(log: Log) -> list[tuple[int, int]]:
    """Return the sum of the bytes of all storages that are held, after each event that changes it.

    Returns:
        Numbers of events and bytes, oldest first.
    """
    saved = _read_saved(log)
    released = _released_recomputed(log, saved)
    tensors = {each.tensor_id: each.storage_id for each in rows_of(log, TensorSeen)}
    owned = {tensors.get(each.tensor_id) for each in rows_of(log, ParameterSeen)}
    times = {row[0]: row[1] for kind in (TensorReleased, TensorUnpacked) for row in log.rows(kind)}
    changes: list[Change] = []
    for saved_id, each in saved.items():
        if each.is_held and each.storage_id not in owned:
            changes.append((each.seq, +1, each.time_ns, saved_id))
            end = released.get(saved_id, each.released)
            if end is not None:
                changes.append((end, -1, times.get(end, each.time_ns), saved_id))
    storages = {saved_id: (each.storage_id, each.nbytes) for saved_id, each in saved.items()}
    sums = sum_bytes(changes, storages, read_resizes(log))
    return list({change[0]: total for change, _, total, _ in sums}.items())


def _read_saved(log: Log) -> dict[int, _Saved]:
    matches = match_ops_to_nodes(log)
    times = {op.seq: op.time_ns for op in rows_of(log, OpCalled)}
    compiled = times_of_compiled_saves(log)
    nodes = {each.saved_id: each.node_id for each in rows_of(log, SlotSeen)}
    released = {each.saved_id: each.seq for each in rows_of(log, TensorReleased)}
    copied = {each.saved_id for each in rows_of(log, SavedStorageFreed)}
    copied.update(each.saved_id for each in rows_of(log, TensorMoved))
    tensors = {each.tensor_id: each for each in rows_of(log, TensorSeen)}
    saved: dict[int, _Saved] = {}
    for each in rows_of(log, TensorSaved):
        node_id = nodes.get(each.saved_id, each.node_id)
        op_seq = matches.op_of_save(node_id, each.thread, each.sequence_nr)
        ran = compiled.get(node_id, (each.seq, each.time_ns))
        is_known = op_seq is not None and op_seq in times
        tensor = tensors.get(each.tensor_id)
        at_position = each.position is not None
        saved[each.saved_id] = _Saved(
            seq=op_seq if is_known and op_seq is not None else ran[0],
            time_ns=times[op_seq] if is_known and op_seq is not None else ran[1],
            released=released.get(each.saved_id),
            region=(each.region_id, each.position),
            is_forward=at_position and each.recompute_id is None,
            is_recomputed=at_position and each.packed_by == "recompute",
            is_held=tensor is not None
            and tensor.storage_id is not None
            and each.saved_id not in copied
            and not (at_position and each.packed_by == "checkpoint"),
            storage_id=None if tensor is None else tensor.storage_id,
            nbytes=0 if tensor is None else tensor.storage_nbytes,
        )
    return saved


def _released_recomputed(log: Log, saved: Mapping[int, _Saved]) -> dict[int, int | None]:
    """Return when recomputed tensors were released, by their ids."""
    recomputed = {saved_id: each for saved_id, each in saved.items() if each.is_recomputed}
    if not recomputed:
        return {}
    forward = {each.region: saved_id for saved_id, each in saved.items() if each.is_forward}
    unpacks = read_unpacks(log)
    ended = {each.backward_id: each.seq for each in rows_of(log, BackwardEnded)}
    found: dict[int, int | None] = {}
    for saved_id, each in recomputed.items():
        if not each.released:
            original = forward.get(each.region)
            found[saved_id] = (
                each.seq
                if original is None
                else release_of_recomputed(
                    each.seq,
                    saved[original].released,
                    [unpack[:2] for unpack in unpacks.get(original, ())],
                    ended,
                )
            )
    return found


def _peaks(points: Sequence[tuple[int, int]], ends: Sequence[int]) -> tuple[int | None, ...]:
    """Return the most bytes in each step, also of what is held when it begins."""
    seqs = [seq for seq, _ in points]
    found: list[int | None] = []
    start = 0
    for end in ends:
        first, until = bisect_left(seqs, start), bisect_left(seqs, end)
        held = max(0, first - 1)
        found.append(max(nbytes for _, nbytes in points[held:until]) if first < until else None)
        start = end
    return tuple(found)


# --- norms of gradients -----------------------------------------------------------------------


def _gradient_norms(log: Log, ends: Sequence[int]) -> tuple[float | None, ...]:
    """Return the norm of the gradients of each step, None if not all norms were read."""
    newest: list[dict[int, int]] = [{} for _ in ends]  # leaf -> the last backward that reached it
    sharded = {each.tensor_id: each.sharded_tensor_id for each in rows_of(log, WholeParameterSeen)}
    for each in rows_of(log, GradAccumulated):
        at = bisect_right(ends, each.seq)
        if at < len(ends):
            newest[at][sharded.get(each.tensor_id, each.tensor_id)] = each.backward_id
    norms = {
        (each.tensor_id, each.backward_id): each.norm
        for each in rows_of(log, NormRead)
        if each.place == "gradient"
    }
    norms |= {(each.tensor_id, each.backward_id): each.norm for each in rows_of(log, StepNormRead)}
    norms |= {
        (each.tensor_id, each.backward_id): each.norm
        for each in rows_of(log, LocalGradientNormRead)
        if not any("Partial" in placement for placement in each.placements)
    }
    return tuple(_norm_of([norms.get(leaf, -1.0) for leaf in each.items()]) for each in newest)


def _norm_of(norms: Sequence[float | None]) -> float | None:
    """Return the norm of some gradients; a negative norm is not known, None is not finite."""
    if not norms or any(norm is not None and norm < 0 for norm in norms):
        return None
    return hypot(*[inf if norm is None else norm for norm in norms])
