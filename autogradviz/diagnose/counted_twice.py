"""A custom backward fills a leaf's .grad by a backward of its own, and returns it as well."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autogradviz.diagnose.finding import Finding
from autogradviz.diagnose.functions import applied_at
from autogradviz.diagnose.wording import fit, quoted, short
from autogradviz.events import BackwardStarted, GradAccumulated, NodeStarted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.diagnose.evidence import Evidence
    from autogradviz.model import Node


def find_counted_twice(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding for the first leaf that a nested backward and its own node both fill."""
    log = evidence.model.log
    if evidence.model.error is not None:
        return
    nested = {e.backward_id: e for e in log.of(BackwardStarted)
              if e.parent_backward_id is not None and e.accumulate}  # fmt: skip
    filled = list(log.of(GradAccumulated)) if nested else []
    for event in filled:
        inner = nested.get(event.backward_id)
        node = _running(evidence, inner) if inner is not None else None
        if inner is None or node is None or not _leads_to(evidence, node, event.node_id):
            continue
        again = [e for e in filled if e.node_id == event.node_id
                 and e.backward_id == inner.parent_backward_id]  # fmt: skip
        if again:
            yield _describe(evidence, node, inner, event, again[0])
            return


def _running(evidence: Evidence, inner: BackwardStarted) -> Node | None:
    """Return the node of the outer backward that began an inner one."""
    started = [
        event
        for event in evidence.model.log.of(NodeStarted)
        if event.backward_id == inner.parent_backward_id
        and event.seq < inner.seq
        and event.thread == inner.thread
    ]
    return evidence.model.graph.nodes.get(started[-1].node_id) if started else None


def _leads_to(evidence: Evidence, node: Node, leaf: int) -> bool:
    edges = evidence.model.graph.edges
    return any(edge.source == node.node_id and edge.target == leaf for edge in edges)


def _describe(
    evidence: Evidence,
    node: Node,
    inner: BackwardStarted,
    first: GradAccumulated,
    second: GradAccumulated,
) -> Finding:
    name = evidence.model.parameters.get(first.tensor_id, ("a leaf",))[0]
    culprit = evidence.model.location(inner.stack_id)
    victim = applied_at(evidence, node) or node.location
    return Finding(
        slug="gradient-counted-twice",
        title=f"{name} gets its gradient from {node.name} twice",
        culprit=culprit,
        victim=victim,
        explanation=fit(
            [
                f"{name} is an argument of a custom Function:",
                quoted(victim),
                f"Its backward calls a backward of its own, at {short(culprit)}:",
                quoted(culprit),
                f"That adds the gradient to {name}.grad. What the Function then returns for the "
                "same leaf is added once more by the backward around it.",
            ]
        ),
        fix="# ask for the gradients and return them, without filling .grad:\n"
        "return torch.autograd.grad(output, inputs, gradient)",
        confidence="likely",
        events=(inner.seq, first.seq, second.seq),
        nodes=(node.node_id,),
    )
