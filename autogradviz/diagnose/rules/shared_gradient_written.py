"""A hook or a custom backward wrote a gradient that another branch receives too.

A node may pass one tensor along several edges (addition does), so a hook must not write its
gradient in place.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal

from autogradviz.diagnose.explain_page import Page
from autogradviz.diagnose.rule import Always, Draft, rule
from autogradviz.diagnose.text_formatting import in_module, short_location
from autogradviz.events import NO_ID, BackwardStarted, HookRan, NodeStarted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from autogradviz.analysis import Node, Op, Tensor
    from autogradviz.diagnose.evidence.facts import Evidence

    _Kind = Literal["shared", "passed on"]


# Nodes that pass their gradient to several inputs. Others may pass None.
_ADDS: Final = ("AddBackward0", "AddBackward")

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

    The other node starts after the write. It receives the gradient from the same node, or from a
    node that ran before the write and passed the gradient on, as ``clone`` and views do.
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
        self._tensors = analysis.tensors
        self._ops = analysis.ops
        self._nodes = analysis.graph.nodes
        self._sources = evidence.edges_to
        self._targets = evidence.edges_from
        self._starts = analysis.log.of(NodeStarted)
        self._started = [event.seq for event in self._starts]
        self._hooks = analysis.log.of(HookRan)
        self._hooked = [event.seq for event in self._hooks]
        self._receivers: dict[int | None, list[tuple[NodeStarted, int]]] = defaultdict(list)
        for event in self._starts:
            for place, tensor_id in enumerate(event.inputs):
                storage_id = analysis.tensors[tensor_id].storage_id if tensor_id != NO_ID else None
                if storage_id is not None:
                    self._receivers[storage_id].append((event, place))

    def affected_by(self, op: Op) -> tuple[_Kind, Node, Node] | None:
        """Return a later receiver of a gradient, the node that passed it on, and how."""
        own = self._own_node(op)
        sources = {edge.source for edge in self._sources[own]} if own is not None else set()
        for tensor in op.written:
            for event, place in self._receivers.get(tensor.storage_id, ()):
                if event.seq < op.seq or event.node_id == own:
                    continue
                for edge in self._sources[event.node_id]:
                    if edge.source in sources and edge.input == place:
                        return "shared", self._nodes[edge.source], self._nodes[edge.target]
            if own is not None and (pending := self._pending(op, tensor.storage_id, own)):
                return pending
        return None

    def _pending(self, op: Op, storage_id: int | None, own: int) -> tuple[_Kind, Node, Node] | None:
        """Return a node that passed the storage on before the write, and one that waits for it."""
        for event, _ in self._receivers.get(storage_id, ()):
            if event.node_id == own or event.seq > op.seq or not self._passes_on(event, op.seq):
                continue
            for edge in self._targets[event.node_id]:
                if edge.target != own and self._starts_after(edge.target, event, op.seq):
                    giver = self._nodes[event.node_id]
                    kind: _Kind = "shared" if len(self._targets[giver.node_id]) > 1 else "passed on"
                    return kind, giver, self._nodes[edge.target]
        return None

    def _passes_on(self, event: NodeStarted, until: int) -> bool:
        """Return whether a node made no tensor, and its result was not accumulated since."""
        storages = {self._tensors[tensor_id].storage_id for tensor_id in event.inputs}
        edges = self._targets[event.node_id]
        if len(storages) != 1 or (len(edges) > 1 and self._nodes[event.node_id].name not in _ADDS):
            return False
        return not any(
            op.backward_node_id == event.node_id
            or (op.name in ("add", "add_") and not storages.isdisjoint(_storages(op.inputs)))
            for op in self._ops_between(event.seq, until)
            if op.written or not _storages(op.outputs) <= storages
        )

    def _ops_between(self, first: int, until: int) -> list[Op]:
        seqs = self._op_seqs
        return list(self._ops[bisect_right(seqs, first) : bisect_left(seqs, until)])

    @cached_property
    def _op_seqs(self) -> list[int]:
        return [op.seq for op in self._ops]

    def _starts_after(self, node_id: int, event: NodeStarted, seq: int) -> bool:
        """Return whether a node starts after the write, and not before it in the same backward."""
        first = self._first_starts.get((node_id, event.backward_id))
        return first is not None and first > seq

    @cached_property
    def _first_starts(self) -> dict[tuple[int, int], int]:
        """The first start of each node in each backward."""
        found: dict[tuple[int, int], int] = {}
        for start in self._starts:
            found.setdefault((start.node_id, start.backward_id), start.seq)
        return found

    def _own_node(self, op: Op) -> int | None:
        """Return the node of the running hook, else the running node."""
        place = bisect_right(self._hooked, op.seq)
        ran = self._hooks[place] if place < len(self._hooks) else None
        if ran is not None and ran.node_id is not None and ran.thread == op.thread:
            start = bisect_right(self._started, op.seq)
            if start == len(self._started) or self._started[start] >= ran.seq:
                return ran.node_id
        return op.backward_node_id


def _storages(tensors: Iterable[Tensor]) -> set[int | None]:
    return {tensor.storage_id for tensor in tensors}


def _draft(op: Op, kind: _Kind, giver: Node, victim: Node) -> Draft:
    return Draft(
        title=f"A gradient was written in place that {victim.name}{in_module(victim.module)} "
        "receives too",
        culprit=op.location,
        victim=victim.location,
        explanation=[
            f"{giver.name} passes one gradient tensor along several edges:"
            if kind == "shared"
            else f"{giver.name} passes on the gradient tensor that it receives, and it is not the "
            "only one that received it:",
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
