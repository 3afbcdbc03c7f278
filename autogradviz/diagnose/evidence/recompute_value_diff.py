"""Differences between the values of a forward and its recomputation, and the lines affected."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final

from autogradviz.analysis.align_ops import is_allocation, other_inputs
from autogradviz.analysis.causal_graph import NO_OP
from autogradviz.events import NO_ID

if TYPE_CHECKING:
    from collections.abc import Container

    from autogradviz.analysis import Op, OpPair, Recomputation, Region, SavedTensor, SourceLocation
    from autogradviz.diagnose.evidence.evidence import Evidence

_SAME_OP: Final = frozenset({"same", "other_input"})
_COPIES: Final = frozenset({"_to_copy", "clone", "copy_", "detach", "contiguous"})


def first_value_mismatch(
    again: Recomputation, excluded: frozenset[int] = frozenset()
) -> OpPair | None:
    """Return the first op that both runs called and that returned other values.

    Ops of only one run prove nothing: a selective policy recomputes less, debugging and gradients
    inside the region add ops.

    Args:
        again: the recomputation.
        excluded: storages; ops that write one of them are skipped.
    """
    return next(
        (
            pair
            for pair in again.pairs
            if pair.status in _SAME_OP
            and _outputs_differ(pair)
            and pair.forward is not None
            and excluded.isdisjoint(t.storage_id for t in pair.forward.written)
        ),
        None,
    )


def first_other_parameter(again: Recomputation, parameters: Container[int]) -> OpPair | None:
    """Return the first op that read one parameter in the forward and another one when recomputed.

    Args:
        again: the recomputation.
        parameters: the ids of the tensors that are parameters.
    """
    return next(
        (
            pair
            for pair in again.pairs
            if any(
                first.tensor_id in parameters and second.tensor_id in parameters
                for first, second in other_inputs(pair, parameters)
            )
        ),
        None,
    )


def first_replaced_tensor(
    evidence: Evidence, region: Region, again: Recomputation
) -> tuple[OpPair, Op] | None:
    """Return the first op that read another tensor when recomputed, and the op that made that one.

    The other tensor is newer than the read in the forward: what held the first one, such as an
    attribute, holds a result of this step since. Copies and tensors that depend on no other, such
    as a mask that is made again, have equal values.
    """
    creators = evidence.analysis.creators
    for pair in again.pairs:
        first, second = pair.forward, pair.recompute
        if first is None or second is None or pair.status not in _SAME_OP:
            continue
        for before, now in zip(first.inputs, second.inputs, strict=False):
            made = creators.get(now.storage_id) if now.storage_id is not None else None
            if (
                made is not None
                and before.storage_id != now.storage_id
                and first.seq <= made.seq < again.started_seq
                and not evidence.created_in(before.storage_id, region)
                and made.name not in _COPIES
                and _depends_on_results(evidence, region, made, before.storage_id)
            ):
                return pair, made
    return None


def _depends_on_results(evidence: Evidence, region: Region, made: Op, earlier: int | None) -> bool:
    """Return whether an op's result depends on an earlier tensor, or on results of a region."""
    graph, ops = evidence.causal_graph, evidence.analysis.ops
    own = {op.seq for op in region.ops}
    start = bisect_left(graph.op_seqs, made.seq)
    waiting, seen = [start], {start}
    while waiting:
        index = waiting.pop()
        op = ops[index]
        if op.sequence_nr is not None and op.seq in own:
            return True
        producers = graph.producers(index)
        for position in graph.value_inputs(index):
            if op.inputs[position].storage_id == earlier and earlier is not None:
                return True
            producer = producers[position]
            if producer != NO_OP and producer not in seen:
                seen.add(producer)
                waiting.append(producer)
    return False


def reaches_gradient(region: Region, read: Op) -> bool:
    """Return whether what an op of a region computed enters an op with a node."""
    reached: set[int] = set()
    for op in region.ops:
        if op is read or any(tensor.storage_id in reached for tensor in op.inputs):
            if op.sequence_nr is not None:
                return True
            reached |= {t.storage_id for t in op.outputs if t.storage_id is not None}
    return False


def first_changed_save(region: Region, again: Recomputation) -> SavedTensor | None:
    """Return the first saved tensor that was recomputed with other content.

    The noise of a randomized ReLU is saved before it is drawn, and drawn before its node runs,
    unless early stop ends a recomputation at that save.
    """
    later = (other.started_seq for other in region.recomputations)
    until = min((seq for seq in later if seq > again.started_seq), default=None)
    last = region.saved[-1].op if region.saved else None
    return next(
        (
            saved
            for saved in region.saved
            for unpack in saved.unpacks
            if again.started_seq < unpack.seq
            and (until is None or unpack.seq < until)
            and None not in {unpack.saved_hash, unpack.seen_hash}
            and unpack.saved_hash != unpack.seen_hash
            # BatchNorm's forward writes its statistics, and training does not read them.
            and not (saved.slot or "").startswith("running_")
            and (saved.slot != "noise" or (again.outcome == "early_stop" and saved.op is last))
        ),
        None,
    )


def values_agree(region: Region, again: Recomputation) -> bool:
    """Return whether contents were recorded, and both runs computed the same."""
    return (
        contents_known(region)
        and not _any_diverges(again)
        and first_changed_save(region, again) is None
    )


def may_agree(region: Region, again: Recomputation) -> bool:
    """Return whether both runs called the same ops, and no contents were recorded."""
    return not contents_known(region) and not _any_diverges(again)


def contents_known(region: Region) -> bool:
    """Return whether the contents of a region's tensors were recorded."""
    return any(op.output_hashes for op in region.ops)


def _any_diverges(again: Recomputation) -> bool:
    return any(_diverges(pair) for pair in again.pairs)


def first_affected_line(region: Region, again: Recomputation) -> SourceLocation | None:
    """Return the line of the first differentiable op that different values reach.

    Early stop ends a recomputation before its last ops, so values are followed through the
    forward's tensors.
    """
    others = {pair.forward.seq: pair for pair in again.pairs if _diverges(pair) and pair.forward}
    replaced = any(pair.status == "added" for pair in again.pairs)
    reached: set[int] = set()
    for op in region.ops:
        if op.seq in others or any(t.storage_id in reached for t in op.inputs):
            # A reentrant forward creates no nodes. An omitted op is not itself affected.
            omitted = op.seq in others and others[op.seq].recompute is None and not replaced
            if op.sequence_nr is not None or (region.reentrant and not omitted):
                return op.location
            reached |= {t.storage_id for t in op.outputs if t.storage_id is not None}
    changed = first_changed_save(region, again)
    if changed is not None:
        return changed.location
    return next((pair.forward.location for pair in others.values() if pair.forward), None)


def _diverges(pair: OpPair) -> bool:
    return pair.status in {"removed", "changed", "other_input"} or (
        pair.status == "same" and _outputs_differ(pair)
    )


def _outputs_differ(pair: OpPair) -> bool:
    first, second = pair.forward, pair.recompute
    if first is None or second is None or is_allocation(first.name):
        return False
    # A view computes nothing; the op that reads it is compared instead.
    views = {t.storage_id for t in first.inputs} - {t.storage_id for t in first.written}
    made = zip(first.outputs, first.output_hashes, second.output_hashes, strict=False)
    return any(
        a != b for tensor, a, b in made if NO_ID not in {a, b} and tensor.storage_id not in views
    )
