"""A region computed other values when it was recomputed, with the same shapes.

Needs fingerprints (``record(fingerprints=True)``): nothing else tells.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.blame.cause import confidence_of
from autogradviz.diagnose.blame.recompute_cause import find_cause
from autogradviz.diagnose.evidence.recompute_diff import (
    first_affected_line,
    first_changed_save,
    first_value_mismatch,
)
from autogradviz.diagnose.finding import Finding
from autogradviz.diagnose.formatting import (
    describe_op,
    in_module,
    paragraphs,
    quote_source,
    short_location,
)
from autogradviz.diagnose.page import Page
from autogradviz.diagnose.rule import NoError, rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Op, OpPair, Recomputation, Region
    from autogradviz.diagnose.evidence.facts import Evidence


PAGE: Final = Page(
    slug="checkpoint-different-values",
    title="Recomputation gave other values in the same shapes",
    means="""The second run of a checkpointed region computed other values, in the same shapes:
    checkpoint did not notice, and the gradient does not belong to the loss. Told where contents
    are recorded, with record(fingerprints=True).""",
    happens="""A counter or a schedule scales something, a tie is broken otherwise, a statistic
    was updated in between.""",
    fix="""Make the region compute the same at each call: pass in what changes.""",
    example="""
import torch
from torch.utils.checkpoint import checkpoint
import autogradviz


class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1  # <-- named
        return (x * self.calls).sin().exp()


net = Scaled()
x = torch.rand(3, requires_grad=True)
with autogradviz.record(net, fingerprints=True) as trace:
    checkpoint(net, x, use_reentrant=False).sum().backward()
""",
)


@rule("checkpoint-different-values", when=NoError(), priority=180, pages=(PAGE,), at_most=None)
def find_different_values(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding for the first region whose recomputation gave other values."""
    # A counter or a running statistic that moved on twice is told as that.
    counted = evidence.buffers | evidence.written_in_both_runs
    for region in evidence.analysis.regions:
        for again in region.recomputations:
            if evidence.written_after(region, again.started_seq) is not None:
                continue  # told by its own family
            pair = first_value_mismatch(again, besides=counted)
            if pair is None:
                pair = _saver(region, again)
            # What ended alike needs no cause, and looking for one reads all of the user's files.
            if pair is None and _ended_otherwise(region, again):
                cause = find_cause(evidence, region, again)
                pair = again.pairs[again.first_difference or 0] if cause is not None else None
            if pair is not None:
                yield _describe(evidence, region, again, pair)
                return


def _saver(region: Region, again: Recomputation) -> OpPair | None:
    """Return the operator whose saved tensor came back with other content.

    Early stop ends a recomputation while its last operator saves: it never gave a result.
    """
    changed = first_changed_save(region, again)
    op = changed.op if changed is not None else None
    return next((p for p in again.pairs if op is not None and p.forward is op), None)


def _ended_otherwise(region: Region, again: Recomputation) -> bool:
    """Return whether a reentrant region gave other values by calling other operators.

    It runs to its end both times, and saves nothing in its forward that could be compared.
    """
    if not (region.reentrant and region.ops and again.ops and again.outcome == "completed"):
        return False
    first, last = region.ops[-1], again.ops[-1]
    known = first.output_hashes and last.output_hashes and not (first.written or last.written)
    return bool(known) and first.output_hashes != last.output_hashes


def _describe(evidence: Evidence, region: Region, again: Recomputation, pair: OpPair) -> Finding:
    cause = find_cause(evidence, region, again)
    op = pair.forward or pair.recompute
    assert op is not None
    culprit = cause.culprit if cause is not None else None
    return Finding(
        slug="checkpoint-different-values",
        title=f"{region.module or region.function} computed other values when it was recomputed"
        + (f": {cause.title}" if cause is not None else ""),
        culprit=culprit or op.location,
        victim=first_affected_line(region, again) or op.location,
        explanation=paragraphs(
            [
                f"The checkpointed region {region.function}{in_module(region.module)} "
                f"({short_location(region.location)}) gave other values the second time, in the "
                "same shapes: its gradients do not belong to the loss that was computed.",
                *(cause.lines if cause is not None else ()),
                f"The first operator to differ: {describe_op(op)}",
                quote_source(op.location),
                _inputs(pair.forward, pair.recompute),
                "Checkpoint compares shapes, not values, so nothing was raised.",
            ]
        ),
        fix=cause.fix
        if cause is not None
        else "# make the region compute the same at every call, or stop checkpointing it",
        confidence=confidence_of(cause),
        events=(op.seq, again.started_seq, *(cause.events if cause is not None else ())),
        region_id=region.region_id,
    )


def _inputs(first: Op | None, second: Op | None) -> str:
    if first is None:
        return "Only the recomputation called it."
    if second is None:
        return "It was not called again, and what it saved came back with other content."
    if first.input_hashes != second.input_hashes:
        return "Its inputs held other values already: what it reads changed in between."
    return "Its inputs held the same values: the operator itself gave another result."
