"""A second backward needs a graph that the first one freed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autogradviz.diagnose.blame.carried_graph import (
    CarriedGraph,
    find_carried_graph,
    find_shared_tensor,
)
from autogradviz.diagnose.evidence.reentrant_regions import find_captured_graph
from autogradviz.diagnose.rule import Draft, ErrorMessage, rule
from autogradviz.diagnose.text_formatting import in_module, short_location
from autogradviz.events import NodeFinished

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Node
    from autogradviz.diagnose.evidence.facts import Evidence


@rule(
    "graph-freed",
    mechanism="free",
    when=ErrorMessage("Trying to backward through the graph a second time"),
    group="backward raised",
    after="reentrant-captured-graph",
)
def graph_freed(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for the first backward, or for the tensor that kept the old graph."""
    if find_captured_graph(evidence) is not None:
        return  # reentrant-captured-graph explains it
    error, nodes = evidence.analysis.error, evidence.analysis.graph.nodes
    node = nodes.get(error.node_id) if error is not None and error.node_id is not None else None
    first = evidence.first_backward(node) if node is not None else None
    carried = _carried(evidence, node) if node is not None else None
    second = evidence.raised_at()
    location = node.location if node is not None else None
    shared = None
    if carried is not None and not carried.reuse.repeats:  # two losses of one step share a tensor
        shared = find_shared_tensor(evidence, carried.reuse)
        carried = None
    sure = first is not None and (carried is None or carried.sure)
    yield Draft(
        title="A second backward needs a graph that the first one freed",
        culprit=(carried.culprit if carried is not None else None)
        or (shared.location if shared is not None else None)
        or first
        or second,
        victim=location or second,
        explanation=[
            f"This backward ran{in_module(node.module if node else '')} "
            f"{node.name if node else 'the graph'} and freed its saved tensors:"
            if first is not None
            else "An earlier backward freed the saved tensors of the graph.",
            first,
            "This one needs them again:",
            second,
            f"They were saved at {short_location(location)}." if location is not None else "",
            *(carried.lines() if carried is not None else ()),
            *(shared.lines() if shared is not None else ()),
        ],
        fix=carried.fix
        if carried is not None
        else shared.fix
        if shared is not None
        else "loss.backward(retain_graph=True)  # in the first backward, or add the losses\n"
        "# and call backward() once",
        confidence="certain" if sure and shared is None else "likely",
        evidence=(carried.reuse.after if carried is not None else None, error, node),
        region_id=node.region_id if node is not None else None,
    )


def _carried(evidence: Evidence, freed: Node) -> CarriedGraph | None:
    """Return the graph of a freed node that the second backward got to."""
    error = evidence.analysis.error
    runs = evidence.analysis.log.of(NodeFinished)
    run = next((event for event in runs if event.node_id == freed.node_id), None)
    first = evidence.backward(run.backward_id) if run is not None else None
    if run is None or first is None or error is None:
        return None
    stack = evidence.analysis.user_stack(first.stack_id)
    return find_carried_graph(evidence, freed, run.seq, stack, error.backward_id)
