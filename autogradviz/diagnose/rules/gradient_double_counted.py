"""A custom backward fills a leaf's .grad by a backward of its own, and returns it as well."""

from __future__ import annotations

from collections import defaultdict
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.evidence.custom_functions import applied_at
from autogradviz.diagnose.finding import Finding
from autogradviz.diagnose.formatting import fit, quoted, short
from autogradviz.diagnose.page import Page
from autogradviz.diagnose.rule import NoError, rule
from autogradviz.events import BackwardStarted, GradAccumulated, NodeStarted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Node
    from autogradviz.diagnose.evidence.facts import Evidence


PAGE: Final = Page(
    slug="gradient-counted-twice",
    title="A custom backward fills .grad itself, and returns the gradient too",
    means="""A Function's backward called backward() on something that it computed from one of its
    own arguments, a leaf. That added to the leaf's .grad; what the Function returned for the same
    leaf was added once more.""",
    happens="""A checkpoint of one's own recomputes with the parameter itself, calls
    torch.autograd.backward(), and returns parameter.grad.""",
    fix="""Return torch.autograd.grad(output, inputs, gradient): it fills no .grad.""",
    example="""
import torch
import autogradviz

class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.kept = x.detach(), weight
        return x * weight

    @staticmethod
    def backward(ctx, gradient):
        x, weight = ctx.kept[0].requires_grad_(), ctx.kept[1]
        with torch.enable_grad():
            y = x * weight
        torch.autograd.backward(y, gradient)  # <-- named
        return x.grad, weight.grad

weight = torch.rand(3, requires_grad=True)
with autogradviz.record() as trace:
    x = torch.rand(3, requires_grad=True) * 2
    Product.apply(x, weight).sum().backward()
""",
)


@rule("gradient-counted-twice", when=NoError(), priority=200, pages=(PAGE,), at_most=None)
def find_counted_twice(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding for the first leaf that a nested backward and its own node both fill."""
    log = evidence.analysis.log
    nested = {e.backward_id: e for e in log.of(BackwardStarted)
              if e.parent_backward_id is not None and e.accumulate}  # fmt: skip
    if not nested:
        return
    filled: dict[int, list[GradAccumulated]] = defaultdict(list)
    for event in log.of(GradAccumulated):
        filled[event.node_id].append(event)
    following: dict[int, set[int]] = defaultdict(set)
    for edge in evidence.analysis.graph.edges:
        following[edge.source].add(edge.target)
    for node_id, inner in _began_by(evidence, nested).items():
        for leaf in sorted(following[node_id] & filled.keys()):
            first = [e for e in filled[leaf] if e.backward_id == inner.backward_id]
            again = [e for e in filled[leaf] if e.backward_id == inner.parent_backward_id]
            if first and again:
                node = evidence.analysis.graph.nodes[node_id]
                yield _describe(evidence, node, inner, first[0], again[0])
                return


def _began_by(evidence: Evidence, nested: dict[int, BackwardStarted]) -> dict[int, BackwardStarted]:
    """Return the backwards that nodes of Python began while they ran, by node."""
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


def _describe(
    evidence: Evidence,
    node: Node,
    inner: BackwardStarted,
    first: GradAccumulated,
    second: GradAccumulated,
) -> Finding:
    name = evidence.leaf_name(first.tensor_id)
    culprit = evidence.analysis.location(inner.stack_id)
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
