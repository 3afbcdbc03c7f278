"""A recomputation handed saved tensors to the wrong operators.

Checkpoint gives the nth tensor saved by the recomputation to the operator that saved the nth
tensor in forward, and compares no more than their metadata. With early stop it does not even
see that the recomputation would have saved more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from autogradviz.diagnose.blame.find_recompute_cause import find_cause
from autogradviz.diagnose.blame.recompute_cause_record import cause_lines, confidence_of, with_cause
from autogradviz.diagnose.evidence.recompute_value_diff import contents_known, first_changed_save
from autogradviz.diagnose.rule import Draft, NoError, rule
from autogradviz.diagnose.text_formatting import describe_region, describe_tensor, slot_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Recomputation, Region, SavedTensor
    from autogradviz.diagnose.evidence.facts import Evidence


@rule(
    "checkpoint-saves-shifted",
    mechanism="diverge",
    when=NoError(),
    group="region",
    after="compiled-recompute-differs",
)
def checkpoint_saves_misaligned(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for the first region whose recomputed saves came from different ops."""
    for region in evidence.analysis.regions:
        for again in region.recomputations[:1]:
            pair = _first_misaligned(region, again)
            if pair is not None:
                yield _draft(evidence, region, again, *pair)


def _first_misaligned(
    region: Region, again: Recomputation
) -> tuple[SavedTensor, SavedTensor] | None:
    if again.first_difference is None:
        return None
    if contents_known(region) and first_changed_save(region, again) is None:
        return None  # another branch that saves the same tensors in the same order
    return next(
        (
            (first, second)
            for first, second in zip(region.saved, again.saved, strict=False)
            if first.position == second.position and _ops_differ(first, second)
        ),
        None,
    )


def _ops_differ(first: SavedTensor, second: SavedTensor) -> bool:
    if first.op is None or second.op is None:
        return False
    return (first.op.name, first.op.location) != (second.op.name, second.op.location)


def _draft(
    evidence: Evidence,
    region: Region,
    again: Recomputation,
    first: SavedTensor,
    second: SavedTensor,
) -> Draft:
    cause = find_cause(evidence, region, again)
    node = evidence.analysis.graph.nodes.get(first.node_id) if first.node_id is not None else None
    assert second.op is not None
    return Draft(
        title=with_cause(
            f"{region.module or region.function} was recomputed with different ops, and saved "
            "tensors went to the wrong ones",
            cause,
        ),
        culprit=(cause.culprit if cause is not None else None) or second,
        victim=first,
        explanation=[
            f"{describe_region(region)} did not run the same way twice.",
            *cause_lines(cause),
            f"Checkpoint returns tensors by position. At position {first.position} forward "
            f"saved {slot_name(first, node.name if node is not None else None)}, "
            f"{describe_tensor(first.tensor)}:",
            first,
            f"and recomputation saved a tensor of {second.op.name}, "
            f"{describe_tensor(second.tensor)}:",
            second,
            "The first node received the second op's tensor. Their shapes are equal, and early "
            "stop ends a recomputation before a surplus save would show, so nothing was raised.",
        ],
        fix=cause.fix if cause is not None else "# make the region run the same ops in every call",
        confidence=confidence_of(cause),
        evidence=(first, second.saved_seq, *(cause.events if cause is not None else ())),
        region_id=region.region_id,
    )
