"""A reentrant region detaches all of its results."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autogradviz.diagnose.evidence.reentrant_regions import REENTRANT_FIX
from autogradviz.diagnose.evidence.requires_grad_flow import End, Flow, storages
from autogradviz.diagnose.rule import Draft, ErrorMessage, rule
from autogradviz.diagnose.text_formatting import in_module

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Region, SourceLocation
    from autogradviz.diagnose.evidence.facts import Evidence


@rule(
    "reentrant-detached-output",
    mechanism="cut",
    when=ErrorMessage("none of output has requires_grad=True"),
    group="backward raised",
)
def reentrant_detached_output(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for the last end of a gradient path in the region recomputed last."""
    recomputed = [region for region in evidence.analysis.regions if region.recomputations]
    region = max(recomputed, key=lambda r: r.recomputations[-1].started_seq, default=None)
    if region is None:
        return
    end = _last_end(evidence, region)
    culprit = end.culprit if end is not None else region.location
    yield Draft(
        title=f"No result of {region.function} requires a gradient"
        + (f": its graph ended at {end.name}" if end is not None else ""),
        culprit=culprit,
        victim=_last_before(region, culprit) or region.location,
        explanation=[
            f"This region{in_module(region.module)} is checkpointed with use_reentrant=True, so "
            "for autograd all of its results require a gradient:",
            region,
            "In the recomputation none did:",
            culprit,
            end.reason if end is not None else "",
        ],
        fix=f"# detach outside the region, or\n{REENTRANT_FIX}",
        confidence="certain" if end is not None else "likely",
        evidence=(region, evidence.analysis.error),
    )


def _last_before(region: Region, culprit: SourceLocation | None) -> SourceLocation | None:
    """Return the last line of a region's recomputation other than the culprit."""
    others = (op.location for op in reversed(region.recomputations[-1].ops) if op.name != "detach")
    return next((place for place in others if place is not None and place != culprit), None)


def _last_end(evidence: Evidence, region: Region) -> End | None:
    """Return the last end of a gradient path in a region's recomputation."""
    flow = Flow(evidence)
    flow.reentrant.clear()  # gradients are enabled in the recomputation
    with_graph, last = set(flow.leaves), None
    for op in region.recomputations[-1].ops:
        taken = storages(op.inputs) & with_graph
        if op.sequence_nr is not None:
            with_graph |= storages(op.outputs)
        elif taken:
            last = flow.end_at(op, taken) or last
    return last
