"""A hook or a custom backward wrote a gradient that belongs to another branch too.

A node may hand one tensor on along several edges (addition does), so a gradient is not the
hook's own to write.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from autogradviz.diagnose.finding import Finding
from autogradviz.diagnose.wording import fit, quoted, short, where
from autogradviz.events import NO_ID, BackwardStarted, HookRan, NodeStarted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.diagnose.evidence import Evidence
    from autogradviz.model import Edge, Node, Op


def find_shared_gradient_writes(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding for the first write to a gradient that another node was still to get."""
    called_at = {
        evidence.model.location(event.stack_id) for event in evidence.model.log.of(BackwardStarted)
    }
    for op in evidence.model.ops:
        # What the engine itself writes is called from the line of the backward.
        if op.phase != "backward" or not op.written or op.location in called_at:
            continue
        found = _harmed(evidence, op)
        if found is not None:
            yield _describe(op, *found)
            return


def _harmed(evidence: Evidence, op: Op) -> tuple[Node, Node] | None:
    """Return who handed the gradient on, and the other node that got it after it was written."""
    written = {tensor.storage_id for tensor in op.written} - {None}
    own = _own_node(evidence, op)
    graph = evidence.model.graph
    givers = {edge.source for edge in graph.edges if edge.target == own}
    shared: dict[int, list[Edge]] = defaultdict(list)
    for edge in graph.edges:
        if edge.source in givers and edge.target != own:
            shared[edge.target].append(edge)
    for event in evidence.model.log.of(NodeStarted):
        if event.seq < op.seq:
            continue
        for edge in shared.get(event.node_id, ()):
            tensor_id = event.inputs[edge.input] if edge.input < len(event.inputs) else NO_ID
            if tensor_id != NO_ID and evidence.model.tensors[tensor_id].storage_id in written:
                return graph.nodes[edge.source], graph.nodes[edge.target]
    return None


def _own_node(evidence: Evidence, op: Op) -> int | None:
    """Return the node whose gradient the writer was given: its hook's, or the running one."""
    ran = next((run for run in evidence.model.log.of(HookRan) if run.seq > op.seq), None)
    if ran is not None and ran.node_id is not None and ran.thread == op.thread:
        started = any(op.seq < event.seq < ran.seq for event in evidence.model.log.of(NodeStarted))
        if not started:
            return ran.node_id
    return op.backward_node_id


def _describe(op: Op, giver: Node, victim: Node) -> Finding:
    return Finding(
        slug="shared-gradient-written",
        title=f"A gradient was written in place that {victim.name}{where(victim.module)} gets too",
        culprit=op.location,
        victim=victim.location,
        explanation=fit(
            [
                f"{giver.name} hands one gradient tensor on along several edges:",
                quoted(giver.location),
                f"{op.name} wrote it in place during backward:",
                quoted(op.location),
                f"{victim.name} ({short(victim.location)}) got the same tensor afterwards, with "
                "the new values:",
                quoted(victim.location),
                "Gradients carry no version check, so nothing was raised.",
            ]
        ),
        fix="return grad * factor  # a new tensor: never write the gradient that a hook is given",
        confidence="certain" if op.location is not None else "likely",
        events=(op.seq,),
        nodes=(victim.node_id, giver.node_id),
    )
