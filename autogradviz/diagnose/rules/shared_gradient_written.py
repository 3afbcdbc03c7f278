"""A hook or a custom backward wrote a gradient that belongs to another branch too.

A node may hand one tensor on along several edges (addition does), so a gradient is not the
hook's own to write.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.finding import Finding
from autogradviz.diagnose.formatting import fit, quoted, short, where
from autogradviz.diagnose.page import Page
from autogradviz.diagnose.rule import Always, rule
from autogradviz.events import NO_ID, BackwardStarted, HookRan, NodeStarted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Edge, Node, Op
    from autogradviz.diagnose.evidence.facts import Evidence


PAGE: Final = Page(
    slug="shared-gradient-written",
    title="A gradient was written in place, and another node gets it too",
    means="""An operator may hand one gradient tensor on along several edges. Who writes it in
    place changes what the others get; gradients carry no version check.""",
    happens="""A tensor hook, or the backward of a custom Function, scales or clips the gradient
    that it was given with mul_, clamp_ or +=.""",
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


@rule("shared-gradient-written", when=Always(), priority=140, pages=(PAGE,), at_most=None)
def find_shared_gradient_writes(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding for the first write, in backward, of a gradient that another node gets too.

    The other node starts after the write, and has a giver in common with the one whose gradient
    was written.
    """
    called_at = {
        evidence.analysis.location(event.stack_id)
        for event in evidence.analysis.log.of(BackwardStarted)
    }
    handed = _Handed(evidence)
    for op in evidence.analysis.ops:
        # What the engine itself writes is called from the line of the backward.
        if op.phase != "backward" or not op.written or op.location in called_at:
            continue
        found = handed.harmed_by(op)
        if found is not None:
            yield _describe(op, *found)
            return


class _Handed:
    """Which gradients nodes were handed, by the memory that they lie in."""

    def __init__(self, evidence: Evidence) -> None:
        analysis = evidence.analysis
        self._nodes = analysis.graph.nodes
        self._starts = analysis.log.of(NodeStarted)
        self._started = [event.seq for event in self._starts]
        self._hooks = analysis.log.of(HookRan)
        self._hooked = [event.seq for event in self._hooks]
        self._givers: dict[int, list[Edge]] = defaultdict(list)
        for edge in analysis.graph.edges:
            self._givers[edge.target].append(edge)
        self._takers: dict[int | None, list[tuple[NodeStarted, int]]] = defaultdict(list)
        for event in self._starts:
            for place, tensor_id in enumerate(event.inputs):
                storage_id = analysis.tensors[tensor_id].storage_id if tensor_id != NO_ID else None
                if storage_id is not None:
                    self._takers[storage_id].append((event, place))

    def harmed_by(self, op: Op) -> tuple[Node, Node] | None:
        """Return who handed the gradient on, and the node that got it after it was written."""
        own = self._own_node(op)
        givers = {edge.source for edge in self._givers[own]} if own is not None else set()
        for tensor in op.written:
            for event, place in self._takers.get(tensor.storage_id, ()):
                if event.seq < op.seq or event.node_id == own:
                    continue
                for edge in self._givers[event.node_id]:
                    if edge.source in givers and edge.input == place:
                        return self._nodes[edge.source], self._nodes[edge.target]
        return None

    def _own_node(self, op: Op) -> int | None:
        """Return the node whose gradient the writer was given: its hook's, or the running one."""
        place = bisect_right(self._hooked, op.seq)
        ran = self._hooks[place] if place < len(self._hooks) else None
        if ran is not None and ran.node_id is not None and ran.thread == op.thread:
            start = bisect_right(self._started, op.seq)
            if start == len(self._started) or self._started[start] >= ran.seq:
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
