"""A recomputation handed saved tensors to the wrong operators.

Checkpoint gives the nth tensor saved by the recomputation to the operator that saved the nth
tensor in forward, and compares no more than their metadata. With early stop it does not even
see that the recomputation would have saved more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.blame.cause import confidence_of
from autogradviz.diagnose.blame.recompute_cause import find_cause
from autogradviz.diagnose.evidence.recompute_diff import contents_known, first_changed_save
from autogradviz.diagnose.finding import Finding
from autogradviz.diagnose.formatting import (
    describe_tensor,
    in_module,
    paragraphs,
    quote_source,
    short_location,
    slot_name,
)
from autogradviz.diagnose.page import Page
from autogradviz.diagnose.rule import NoError, rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Recomputation, Region, SavedTensor
    from autogradviz.diagnose.evidence.facts import Evidence


PAGE: Final = Page(
    slug="checkpoint-saves-shifted",
    title="The recomputation saved other tensors, and they fit",
    means="""checkpoint pairs what the recomputation saves with what the forward saved by
    position, and stops when it has enough. Where shapes and dtypes happen to agree, an operator
    is handed another one's tensor: a wrong gradient, and no error.""",
    happens="""The region takes another way in its second run: a counter, a flag, a cache.""",
    fix="""Make both runs take the same way. checkpoint(..., early_stop=False) compares the number
    of tensors too.""",
    example="""
import torch
from torch.utils.checkpoint import checkpoint
import autogradviz

calls = []


def block(x):
    calls.append(1)  # <-- named
    if len(calls) == 2:
        x = x.sin()
    return x.exp().sin()


x = torch.rand(3, requires_grad=True)
with autogradviz.record() as trace:
    checkpoint(block, x, use_reentrant=False).sum().backward()
""",
)


@rule("checkpoint-saves-shifted", when=NoError(), priority=130, pages=(PAGE,), at_most=None)
def find_shifted_saves(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding for the first region whose saves came from other operators."""
    for region in evidence.analysis.regions:
        for again in region.recomputations[:1]:
            pair = _first_shifted(region, again)
            if pair is not None:
                yield _describe(evidence, region, again, *pair)
                return


def _first_shifted(region: Region, again: Recomputation) -> tuple[SavedTensor, SavedTensor] | None:
    if again.first_difference is None:
        return None
    if contents_known(region) and first_changed_save(region, again) is None:
        return None  # another branch that saves the same in the same order
    return next(
        (
            (first, second)
            for first, second in zip(region.saved, again.saved, strict=False)
            if first.position == second.position and _other_op(first, second)
        ),
        None,
    )


def _other_op(first: SavedTensor, second: SavedTensor) -> bool:
    if first.op is None or second.op is None:
        return False
    return (first.op.name, first.op.location) != (second.op.name, second.op.location)


def _describe(
    evidence: Evidence,
    region: Region,
    again: Recomputation,
    first: SavedTensor,
    second: SavedTensor,
) -> Finding:
    cause = find_cause(evidence, region, again)
    node = evidence.analysis.graph.nodes.get(first.node_id) if first.node_id is not None else None
    assert first.op is not None
    assert second.op is not None
    return Finding(
        slug="checkpoint-saves-shifted",
        title=f"{region.module or region.function} was recomputed by other operators, and saved "
        "tensors went to the wrong ones" + (f": {cause.title}" if cause is not None else ""),
        culprit=(cause.culprit if cause is not None else None) or second.location,
        victim=first.location,
        explanation=paragraphs(
            [
                f"The checkpointed region {region.function}{in_module(region.module)} "
                f"({short_location(region.location)}) did not run the same way twice.",
                *(cause.lines if cause is not None else ()),
                f"Checkpoint hands tensors back by position. At position {first.position} forward "
                f"saved {slot_name(first, node.name if node is not None else None)}, "
                f"{describe_tensor(first.tensor)}:",
                quote_source(first.location),
                f"and recomputation saved one of {second.op.name}, "
                f"{describe_tensor(second.tensor)}:",
                quote_source(second.location),
                "The first was given the second's tensor. Their shapes are the same and early stop "
                "ends a recomputation before its surplus would show, so nothing was raised.",
            ]
        ),
        fix=cause.fix
        if cause is not None
        else "# make the region run the same operators at every call",
        confidence=confidence_of(cause),
        events=(first.saved_seq, second.saved_seq, *(cause.events if cause is not None else ())),
        nodes=(first.node_id,) if first.node_id is not None else (),
        region_id=region.region_id,
    )
