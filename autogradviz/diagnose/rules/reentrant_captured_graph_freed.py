"""The nested backward of a reentrant region frees a graph that the region captured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autogradviz.diagnose.blame.region_tensors_in_containers import is_nested_argument
from autogradviz.diagnose.evidence.reentrant_regions import REENTRANT_FIX, find_captured_graph
from autogradviz.diagnose.rule import Draft, ErrorMessage, rule
from autogradviz.diagnose.text_formatting import in_module

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.diagnose.evidence.facts import Evidence


@rule(
    "reentrant-captured-graph",
    mechanism="free",
    when=ErrorMessage("Trying to backward through the graph a second time"),
    group="backward raised",
)
def reentrant_captured_graph(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for the first region that reads a tensor with a graph past its arguments."""
    found = find_captured_graph(evidence)
    if found is None:
        return
    region, maker, reader = found
    within = is_nested_argument(evidence, region, reader)
    error, nodes = evidence.analysis.error, evidence.analysis.graph.nodes
    node = nodes.get(error.node_id) if error is not None and error.node_id is not None else None
    yield Draft(
        title=f"{region.function} gets a tensor with a graph inside a tuple or an object"
        if within
        else f"{region.function} reads a tensor with a graph that is not an argument",
        culprit=region,
        victim=node if node is not None else maker,
        explanation=[
            f"This region{in_module(region.module)} is checkpointed with use_reentrant=True:",
            region,
            "It reads a tensor from inside another argument:"
            if within
            else "It reads a tensor that is not one of its arguments:",
            reader,
            "which was computed here:",
            maker,
            "The region's backward is a nested backward. Arguments are detached from their graph "
            "for it; this tensor is not, so its graph runs there and again from the loss, and the "
            "first of the two frees it.",
        ],
        fix=f"# pass the tensor itself as an argument, or\n{REENTRANT_FIX}",
        confidence="likely" if within else "certain",
        evidence=(maker, reader),
        region_id=region.region_id,
    )
