"""Rules: a recomputation of a checkpointed region that computed other values."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from autogradviz.diagnose.blame.causes_of_recompute_difference import find_cause, random_cause
from autogradviz.diagnose.blame.recompute_difference_cause_record import (
    cause_lines,
    confidence_of,
    with_cause,
)
from autogradviz.diagnose.evidence.recompute_value_diff import (
    contents_known,
    first_affected_line,
    first_changed_save,
    first_other_parameter,
    first_replaced_tensor,
    first_value_mismatch,
    may_agree,
    reaches_gradient,
    values_agree,
)
from autogradviz.diagnose.finding_text import (
    describe_op,
    describe_region,
    in_module,
    short_location,
)
from autogradviz.diagnose.rule import Always, Draft, NoError, rule
from autogradviz.diagnose.source.regions_repaired_as_fixes import moved_below

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Op
    from autogradviz.diagnose.evidence.evidence import Evidence

    Pair: TypeAlias = tuple[Op, Op]
    from collections.abc import Mapping

    from autogradviz.analysis import Op, OpPair, Recomputation, Region
    from autogradviz.diagnose.blame.recompute_difference_cause_record import Cause


# --- A region computed other values when it was recomputed, with the same shapes ------------------
#
# Needs fingerprints (``record(fingerprints=True)``), unless the recomputation reads other
# parameters, or tensors that were computed after the forward had read what was in their place.


@rule(
    "checkpoint-different-values",
    "checkpoint-effect-repeated",
    mechanism="diverge",
    when=NoError(),
    group="region",
    after="checkpoint-random-not-restored",
    before="checkpoint_effect_repeated",
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
                    _value_mismatch(evidence, region, again, pair, cause)
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


def _value_mismatch(
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


# --- A checkpointed region drew other random numbers when it was recomputed -----------------------


@rule(
    "checkpoint-random-not-restored",
    "checkpoint-random-state",
    mechanism="diverge",
    when=NoError(),
    group="region",
    after="checkpoint-captured-tensor-mutated",
)
def checkpoint_random_not_restored(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for each region whose first recomputation drew other random numbers."""
    for region in evidence.analysis.regions:
        for recomputation in region.recomputations[:1]:
            cause = random_cause(evidence, region, recomputation)
            if cause is None or values_agree(region, recomputation):
                continue
            # Only fingerprints show whether a number drawn in Python reached a tensor.
            unsure = cause.slug == "checkpoint-random-state" and may_agree(region, recomputation)
            yield Draft(
                slug=cause.slug,
                title=f"{cause.title}{in_module(region.module)}",
                culprit=cause.culprit,
                victim=first_affected_line(region, recomputation) or cause.victim,
                explanation=[
                    f"The checkpointed region {region.function}{in_module(region.module)} "
                    f"({short_location(region.location)}) drew other random numbers when it was "
                    "recomputed; its gradients belong to those.",
                    *cause.lines,
                    "Shapes are the same, so checkpoint did not notice."
                    + (" record(fingerprints=True) shows whether values differ." * unsure),
                ],
                fix=cause.fix,
                confidence="hint" if unsure else cause.confidence,
                evidence=(*cause.events, recomputation),
            )


# --- A tensor that a checkpointed region reads was written between forward and recomputation ------
#
# PyTorch checks the shapes of recomputed tensors, and the versions of positional tensor arguments.
# It does not check parameters, buffers and captured tensors; their versions are in the log.


@rule(
    "checkpoint-captured-tensor-mutated",
    mechanism="write",
    when=Always(),
    group="region",
    after="shared-gradient-written",
    needs={"ops"},
)
def checkpoint_captured_tensor_mutated(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for each recomputation that read a tensor written after the forward."""
    for region in evidence.analysis.regions:
        for recomputation in region.recomputations:
            found = evidence.written_after(region, recomputation.started_seq)
            if found is not None and not values_agree(region, recomputation):
                yield _read_tensor_written(evidence, region, recomputation, *found)


def _read_tensor_written(
    evidence: Evidence, region: Region, recomputation: Recomputation, write: Op, read: Op
) -> Draft:
    name = evidence.shared_name(write, read)
    return Draft(
        title=f"{name or 'A tensor'} changed before the region that reads it was recomputed",
        culprit=write,
        victim=read.location or region.location,
        explanation=[
            f"The checkpointed region {region.function}{in_module(region.module)} reads "
            f"{name or 'a tensor that it did not make'} at {short_location(read.location)}:",
            region,
            f"After its forward, {write.name} wrote it:",
            write,
            "Then the region was recomputed from the new values: its gradients do not belong to "
            "the loss that was computed. Checkpoint compares the versions of positional tensor "
            "arguments only, so nothing was raised.",
        ],
        fix="# call step() only after every backward() through the region"
        if evidence.in_optimizer(write)
        else moved_below(write.location, evidence.backward_line(recomputation.backward_id))
        or "# move this write after backward(), or write to a clone",
        # A step belongs where it is as often as the forward: either could be moved.
        confidence="likely" if evidence.in_optimizer(write) else None,
        evidence=(read, write, recomputation),
    )
