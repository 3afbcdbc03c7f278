"""A custom backward adds to a leaf's .grad in a nested backward and also returns the gradient."""

from __future__ import annotations

from collections import defaultdict
from operator import attrgetter
from typing import TYPE_CHECKING

from autogradviz.diagnose.evidence.custom_function_ops import applied_at
from autogradviz.diagnose.rule import Draft, NoError, rule
from autogradviz.diagnose.text_formatting import short_location
from autogradviz.events import BackwardStarted, GradAccumulated, NodeStarted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Node
    from autogradviz.diagnose.evidence.facts import Evidence


@rule(
    "gradient-counted-twice",
    mechanism="mix",
    when=NoError(),
    group="region",
    after="shared-gradient-written",
)
def gradient_double_counted(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for each leaf to which a node and a backward inside that node accumulate."""
    log = evidence.analysis.log
    nested = {e.backward_id: e for e in log.of(BackwardStarted)
              if e.parent_backward_id is not None and e.accumulate}  # fmt: skip
    if not nested:
        return
    accumulated: dict[int, list[GradAccumulated]] = defaultdict(list)
    for event in log.of(GradAccumulated):
        accumulated[event.node_id].append(event)
    next_nodes: dict[int, set[int]] = defaultdict(set)
    for edge in evidence.analysis.graph.edges:
        next_nodes[edge.source].add(edge.target)
    for node_id, inner in _backwards_inside_nodes(evidence, nested).items():
        for leaf in sorted(next_nodes[node_id] & accumulated.keys()):
            first = [e for e in accumulated[leaf] if e.backward_id == inner.backward_id]
            second = [e for e in accumulated[leaf] if e.backward_id == inner.parent_backward_id]
            if first and second:
                node = evidence.analysis.graph.nodes[node_id]
                yield _draft(evidence, node, inner, first[0], second[0])


def _backwards_inside_nodes(
    evidence: Evidence, nested: dict[int, BackwardStarted]
) -> dict[int, BackwardStarted]:
    """Return the first backward that each node started while it ran."""
    found: dict[int, BackwardStarted] = {}
    running: dict[tuple[int, int], int] = {}  # by backward and thread
    events: list[NodeStarted | BackwardStarted] = list(evidence.analysis.log.of(NodeStarted))
    for event in sorted([*events, *nested.values()], key=attrgetter("seq")):
        if isinstance(event, NodeStarted):
            running[event.backward_id, event.thread] = event.node_id
        elif event.parent_backward_id is not None:
            node_id = running.get((event.parent_backward_id, event.thread))
            node = evidence.analysis.graph.nodes.get(node_id) if node_id is not None else None
            if node is not None:
                found.setdefault(node.node_id, event)
    return found


def _draft(
    evidence: Evidence,
    node: Node,
    inner: BackwardStarted,
    first: GradAccumulated,
    second: GradAccumulated,
) -> Draft:
    name = evidence.analysis.leaf_name(first.tensor_id)
    culprit = evidence.analysis.location(inner.stack_id)
    victim = applied_at(evidence, node) or node.location
    return Draft(
        title=f"{name} gets its gradient from {node.name} twice",
        culprit=culprit,
        victim=victim,
        explanation=[
            f"{name} is an argument of a custom Function:",
            victim,
            f"Its backward starts a nested backward at {short_location(culprit)}:",
            culprit,
            f"That adds the gradient to {name}.grad. The gradient that the Function then returns "
            "for the same leaf is added a second time by the outer backward.",
        ],
        fix="# return the gradients without writing .grad:\n"
        "return torch.autograd.grad(output, inputs, gradient)",
        confidence="likely",
        evidence=(inner, first, second, node),
    )
