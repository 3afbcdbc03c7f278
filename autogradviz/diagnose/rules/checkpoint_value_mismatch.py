"""A region computed other values when it was recomputed, with the same shapes.

Needs fingerprints (``record(fingerprints=True)``), unless the recomputation reads other parameters,
or tensors that were computed after the forward had read what was in their place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from autogradviz.diagnose.blame.find_recompute_cause import find_cause
from autogradviz.diagnose.blame.recompute_cause_record import cause_lines, confidence_of, with_cause
from autogradviz.diagnose.evidence.recompute_value_diff import (
    contents_known,
    first_affected_line,
    first_changed_save,
    first_other_parameter,
    first_replaced_tensor,
    first_value_mismatch,
    reaches_gradient,
)
from autogradviz.diagnose.rule import Draft, NoError, rule
from autogradviz.diagnose.text_formatting import describe_op, describe_region

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from autogradviz.analysis import Op, OpPair, Recomputation, Region
    from autogradviz.diagnose.blame.recompute_cause_record import Cause
    from autogradviz.diagnose.evidence.facts import Evidence


@rule(
    "checkpoint-different-values",
    "checkpoint-effect-repeated",
    mechanism="diverge",
    when=NoError(),
    group="region",
    after="checkpoint_effect_repeated",
)
def checkpoint_value_mismatch(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for the first region whose recomputation computed other values."""
    # Counters and running statistics that changed twice have a rule of their own.
    changed_twice = evidence.buffers | evidence.written_in_both_runs
    for region in evidence.analysis.regions:
        for again in region.recomputations:
            if evidence.written_after(region, again.started_seq) is not None:
                continue  # checkpoint-captured-tensor-mutated
            pair = (
                first_other_parameter(again, evidence.analysis.parameters)
                or first_value_mismatch(again, excluded=changed_twice)
                or _op_of_changed_save(region, again)
            )
            made = None
            if pair is None and not contents_known(region):
                pair, made = first_replaced_tensor(evidence, region, again) or (None, None)
            # Equal results need no cause; searching for one reads all of the user's files.
            cause = None
            if pair is None and _results_differ(region, again):
                cause = find_cause(evidence, region, again)
                pair = again.pairs[again.first_difference or 0] if cause is not None else None
            if pair is not None:
                cause = cause or find_cause(evidence, region, again)
                yield (
                    _draft(evidence, region, again, pair, cause)
                    if made is None
                    else _replaced(region, again, pair, made, cause)
                )


def _op_of_changed_save(region: Region, again: Recomputation) -> OpPair | None:
    """Return the op whose saved tensor was recomputed with other content.

    Early stop ends a recomputation while its last op saves, before that op returns a result.
    """
    changed = first_changed_save(region, again)
    op = changed.op if changed is not None else None
    return next((p for p in again.pairs if op is not None and p.forward is op), None)


def _results_differ(region: Region, again: Recomputation) -> bool:
    """Return whether a reentrant region returned other values by calling other ops.

    It runs to its end both times, and its forward saves nothing that could be compared.
    """
    if not (region.reentrant and region.ops and again.ops and again.outcome == "completed"):
        return False
    first, last = region.ops[-1], again.ops[-1]
    known = first.output_hashes and last.output_hashes and not (first.written or last.written)
    return bool(known) and first.output_hashes != last.output_hashes


def _draft(
    evidence: Evidence, region: Region, again: Recomputation, pair: OpPair, cause: Cause | None
) -> Draft:
    op = pair.forward or pair.recompute
    assert op is not None
    names = evidence.analysis.parameters
    culprit = cause.culprit if cause is not None else None
    return Draft(
        title=with_cause(
            f"{region.module or region.function} computed other values when it was recomputed",
            cause,
        ),
        culprit=culprit or op,
        victim=first_affected_line(region, again) or op,
        explanation=[
            f"{describe_region(region)} computed other values the second time, in the same shapes: "
            "its gradients do not belong to the computed loss.",
            *cause_lines(cause),
            f"The first op that differs: {describe_op(op)}",
            op,
            _inputs(pair.forward, pair.recompute, names),
            "Checkpoint compares shapes, not values, so nothing was raised.",
        ],
        fix=cause.fix
        if cause is not None
        else "# make the region compute the same in every call, or stop checkpointing it",
        confidence=confidence_of(cause),
        evidence=(op, again, *(cause.events if cause is not None else ())),
        region_id=region.region_id,
    )


def _replaced(
    region: Region, again: Recomputation, pair: OpPair, made: Op, cause: Cause | None
) -> Draft:
    """Return a draft for a tensor that was replaced by a newer one before recomputation."""
    read = pair.forward
    assert read is not None
    affects = reaches_gradient(region, read)
    name = region.module or region.function
    return Draft(
        slug="checkpoint-different-values" if affects else "checkpoint-effect-repeated",
        title=with_cause(f"{name} read another tensor when it was recomputed", cause),
        culprit=(cause.culprit if cause is not None else None) or made,
        victim=first_affected_line(region, again) or read,
        explanation=[
            f"{describe_region(region)} reads a tensor from outside:",
            read,
            "After that, another tensor took its place, which was computed here:",
            made,
            *cause_lines(cause),
            "Recomputation read the new one: its gradients do not belong to the computed loss."
            if affects
            else "Recomputation started from the new one, and computed the update again.",
            "Checkpoint compares shapes, not values, so nothing was raised.",
        ],
        fix="# return the new tensor from the region, and store it outside, after backward()",
        confidence="likely",
        evidence=(read, made, again, *(cause.events if cause is not None else ())),
        region_id=region.region_id,
    )


def _inputs(first: Op | None, second: Op | None, names: Mapping[int, tuple[str, ...]]) -> str:
    if first is None:
        return "Only the recomputation called it."
    if second is None:
        return "It was not called again, and its saved tensor was recomputed with other content."
    read, again = ([names[t.tensor_id][0] for t in op.inputs if t.tensor_id in names]
                   for op in (first, second))  # fmt: skip
    if read != again:
        return f"It read {', '.join(read)} in the forward, and {', '.join(again)} when recomputed."
    if first.input_hashes != second.input_hashes:
        return "Its inputs held other values already: they changed in between."
    return "Its inputs held the same values: the op itself returned another result."
