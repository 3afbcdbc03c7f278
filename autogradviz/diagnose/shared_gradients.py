"""A hook or a custom backward wrote a gradient that belongs to another branch too.

A node may hand one tensor on along several edges (addition does), so a gradient is not the
hook's own to write.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from autogradviz.diagnose.finding import Finding
from autogradviz.diagnose.wording import fit, quoted, short, where
from autogradviz.events import NO_ID, BackwardStarted, HookRan, NodeFinished, NodeStarted

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
    """Return who handed the gradient on, and the node that got it after it was written."""
    written = {tensor.storage_id for tensor in op.written} - {None}
    own = _own_node(evidence, op)
    edges: dict[int, list[Edge]] = defaultdict(list)
    for edge in evidence.model.graph.edges:
        edges[edge.source].append(edge)
    for event in evidence.model.log.of(NodeFinished):
        if event.seq > op.seq:
            break
        for edge in edges[event.node_id]:
            tensor_id = event.outputs[edge.output] if edge.output < len(event.outputs) else NO_ID
            if tensor_id == NO_ID or edge.target == own:
                continue
            if evidence.model.tensors[tensor_id].storage_id in written and _got_it(
                evidence, edge, op, tensor_id, event.backward_id
            ):
                nodes = evidence.model.graph.nodes
                return nodes[edge.source], nodes[edge.target]
    return None


def _own_node(evidence: Evidence, op: Op) -> int | None:
    """Return the node whose gradient the writer was given: its hook's, or the running one."""
    ran = next((run for run in evidence.model.log.of(HookRan) if run.seq > op.seq), None)
    if ran is not None and ran.node_id is not None and ran.thread == op.thread:
        started = any(op.seq < event.seq < ran.seq for event in evidence.model.log.of(NodeStarted))
        if not started:
            return ran.node_id
    return op.backward_node_id


def _got_it(evidence: Evidence, edge: Edge, op: Op, tensor_id: int, backward_id: int) -> bool:
    """Return whether a node started with the gradient after it was written."""
    return any(
        event.node_id == edge.target
        and event.seq > op.seq
        and event.backward_id == backward_id
        and edge.input < len(event.inputs)
        and event.inputs[edge.input] == tensor_id
        for event in evidence.model.log.of(NodeStarted)
    )


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
