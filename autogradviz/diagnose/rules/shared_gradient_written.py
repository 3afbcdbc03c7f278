"""A hook or a custom backward wrote a gradient that another branch receives too.

A node may pass one tensor along several edges (addition does), so a hook must not write its
gradient in place.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.explain_page import Page
from autogradviz.diagnose.rule import Always, Draft, rule
from autogradviz.diagnose.text_formatting import in_module, short_location
from autogradviz.events import NO_ID, BackwardStarted, HookRan, NodeStarted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Edge, Node, Op
    from autogradviz.diagnose.evidence.facts import Evidence


PAGE: Final = Page(
    slug="shared-gradient-written",
    title="A gradient was written in place, and another node receives it too",
    means="""A node may pass one gradient tensor along several edges. A write in place changes the
    gradient of the other branches; gradients have no version check.""",
    happens="""A tensor hook, or the backward of a custom Function, scales or clips its incoming
    gradient with mul_, clamp_ or +=.""",
    fix="""Return a new tensor: grad * 0.5.""",
    example="""
import torch
import autogradviz

x = torch.rand(3, requires_grad=True)
with autogradviz.record() as trace:
    a, b = x * 2, x * 3
    b.register_hook(lambda grad: grad.mul_(0.5))  # <-- named
    (a + b).square().sum().backward()
""",
)


@rule("shared-gradient-written", when=Always(), priority=140, pages=(PAGE,))
def shared_gradient_written(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for the first write, in backward, to a gradient that another node receives.

    The other node starts after the write, and receives the gradient from the same node.
    """
    called_at = {
        evidence.analysis.location(event.stack_id)
        for event in evidence.analysis.log.of(BackwardStarted)
    }
    gradients = _IncomingGradients(evidence)
    for op in evidence.analysis.ops:
        # Writes of the engine itself have the line of the backward call.
        if op.phase != "backward" or not op.written or op.location in called_at:
            continue
        found = gradients.affected_by(op)
        if found is not None:
            yield _draft(op, *found)


class _IncomingGradients:
    """The gradients that nodes received, by storage."""

    def __init__(self, evidence: Evidence) -> None:
        analysis = evidence.analysis
        self._nodes = analysis.graph.nodes
        self._starts = analysis.log.of(NodeStarted)
        self._started = [event.seq for event in self._starts]
        self._hooks = analysis.log.of(HookRan)
        self._hooked = [event.seq for event in self._hooks]
        self._sources: dict[int, list[Edge]] = defaultdict(list)
        for edge in analysis.graph.edges:
            self._sources[edge.target].append(edge)
        self._receivers: dict[int | None, list[tuple[NodeStarted, int]]] = defaultdict(list)
        for event in self._starts:
            for place, tensor_id in enumerate(event.inputs):
                storage_id = analysis.tensors[tensor_id].storage_id if tensor_id != NO_ID else None
                if storage_id is not None:
                    self._receivers[storage_id].append((event, place))

    def affected_by(self, op: Op) -> tuple[Node, Node] | None:
        """Return the node that passed a gradient on, and one that received it after the write."""
        own = self._own_node(op)
        sources = {edge.source for edge in self._sources[own]} if own is not None else set()
        for tensor in op.written:
            for event, place in self._receivers.get(tensor.storage_id, ()):
                if event.seq < op.seq or event.node_id == own:
                    continue
                for edge in self._sources[event.node_id]:
                    if edge.source in sources and edge.input == place:
                        return self._nodes[edge.source], self._nodes[edge.target]
        return None

    def _own_node(self, op: Op) -> int | None:
        """Return the node of the running hook, else the running node."""
        place = bisect_right(self._hooked, op.seq)
        ran = self._hooks[place] if place < len(self._hooks) else None
        if ran is not None and ran.node_id is not None and ran.thread == op.thread:
            start = bisect_right(self._started, op.seq)
            if start == len(self._started) or self._started[start] >= ran.seq:
                return ran.node_id
        return op.backward_node_id


def _draft(op: Op, giver: Node, victim: Node) -> Draft:
    return Draft(
        title=f"A gradient was written in place that {victim.name}{in_module(victim.module)} "
        "receives too",
        culprit=op.location,
        victim=victim.location,
        explanation=[
            f"{giver.name} passes one gradient tensor along several edges:",
            giver,
            f"{op.name} wrote it in place during backward:",
            op,
            f"{victim.name} ({short_location(victim.location)}) received the same tensor "
            "afterwards, with the new values:",
            victim,
            "Gradients have no version check, so nothing was raised.",
        ],
        fix="return grad * factor  # a new tensor: never write an incoming gradient in place",
        confidence="certain" if op.location is not None else "likely",
        evidence=(op, victim, giver),
    )
