"""A second backward over a selectively checkpointed region."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autogradviz.diagnose.rule import Draft, ErrorMessage, rule
from autogradviz.events import BackwardStarted, PolicyDecided

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Region, SourceLocation
    from autogradviz.diagnose.evidence.facts import Evidence


@rule(
    "selective-backward-twice",
    mechanism="free",
    when=ErrorMessage("Trying to backward an extra time"),
    group="backward raised",
)
def selective_backward_twice(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for the last backward."""
    region = next((r for r in reversed(evidence.analysis.regions) if r.recomputations), None)
    started = evidence.analysis.log.of(BackwardStarted)
    backward = evidence.analysis.location(started[-1].stack_id) if started else None
    yield Draft(
        title="A second backward runs over a selectively checkpointed region",
        culprit=backward,
        victim=_first_cached(evidence, region) if region is not None else None,
        explanation=[
            "The tensors that the policy of a selectively checkpointed region caches are used up "
            "by its first recomputation:",
            region,
            "This backward runs over the region again:",
            backward,
        ],
        fix="# add the losses and call backward() once, or checkpoint without a policy",
        confidence="certain",
        evidence=(evidence.analysis.error,),
    )


def _first_cached(evidence: Evidence, region: Region) -> SourceLocation | None:
    """Return the first operator of a region whose result the policy caches."""
    cached = {event.op_seq for event in evidence.analysis.log.of(PolicyDecided) if event.cached}
    return next((op.location for op in region.ops if op.seq in cached), region.location)
