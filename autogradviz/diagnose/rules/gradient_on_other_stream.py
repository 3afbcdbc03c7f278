"""Gradients that are accumulated on another stream than the one that computed them."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from autogradviz.diagnose.rule import Draft, NoError, rule
from autogradviz.events import NodeStarted, StreamUsed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Node, Op
    from autogradviz.diagnose.evidence.facts import Evidence


@rule("gradient-on-other-stream", mechanism="cost", when=NoError(), group="waste", needs={"ops"})
def gradient_on_other_stream(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for the first leaf whose node for accumulation has another stream."""
    analysis = evidence.analysis
    used = {
        (event.backward_id, event.node_id): event.stream
        for event in analysis.log.of(StreamUsed)
        if event.node_id is not None
    }
    if not used:
        return
    nodes = analysis.graph.nodes
    below = defaultdict(list)
    for edge in analysis.graph.edges:
        below[edge.target].append(edge.source)
    ran: dict[int, list[int]] = defaultdict(list)
    for backward_id, node_id in analysis.log.fields(NodeStarted, "backward_id", "node_id"):
        ran[node_id].append(backward_id)
    for node_id, node in nodes.items():
        if node.parameter is None or node.parameter.tensor.device.split(":")[0] in {"cpu", "meta"}:
            continue
        for backward_id in ran[node_id]:
            own = used.get((backward_id, node_id), 0)
            for source in below[node_id]:
                stream = used.get((backward_id, source), 0)
                if backward_id in ran[source] and stream != own:
                    yield _draft(evidence, node, nodes[source], stream, own)
                    return


def _draft(evidence: Evidence, leaf: Node, source: Node, stream: int, own: int) -> Draft:
    assert leaf.parameter is not None
    name = leaf.parameter.name or "a leaf"
    first = _first_use(evidence, leaf, source.op)
    return Draft(
        title=f"The gradient of {name} is accumulated on another stream than its forward ran on",
        culprit=source.op,
        victim=first,
        explanation=[
            f"{source.name} computes the gradient on stream {stream}, that of its forward:",
            source.op,
            f"The node that accumulates it runs on stream {own}, which was current when the leaf "
            "was first used in a graph that is still alive:" if first else
            f"The node that accumulates it runs on stream {own}, which was current when a graph "
            "first used the leaf, before the recording.",
            first,
            "The engine makes one stream wait for the other in each step. In a CUDA graph that "
            "fails. DistributedDataParallel keeps such nodes, and so does a loss that is kept.",
        ],
        fix="# use the parameters on one stream from the first forward on, or drop the old graph",
        evidence=[source.op, first],
        confidence="hint",
    )  # fmt: skip


def _first_use(evidence: Evidence, leaf: Node, op: Op | None) -> Op | None:
    """Return the first op that took a leaf and made a node, None if it is that of the node."""
    assert leaf.parameter is not None
    tensor_id = leaf.parameter.tensor.tensor_id
    for each in evidence.analysis.ops:
        takes = any(tensor.tensor_id == tensor_id for tensor in each.inputs)
        if takes and each.node_id is not None:
            return None if op is not None and each.seq == op.seq else each
    return None
