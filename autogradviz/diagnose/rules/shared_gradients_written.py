"""Rules: a hook or backward that wrote a gradient which another branch of the graph gets too."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from autogradviz.diagnose.finding_text import in_module, short_location
from autogradviz.diagnose.rule import Always, Draft, rule
from autogradviz.events import (
    NO_ID,
    GradientBuffersOffered,
    HookRan,
    NodeStarted,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from autogradviz.analysis import Edge, Node, Op, Tensor
    from autogradviz.diagnose.evidence.evidence import Evidence

    _Kind = Literal["shared", "passed on"]


# A node may pass one tensor along several edges (addition does), so a hook must not write its
# gradient in place. A custom backward may write the buffers that the engine offers to it.


# Nodes that pass their gradient to several inputs. Others may pass None.
_ADDS: Final = ("AddBackward0", "AddBackward")

_seq: Final = attrgetter("seq")


@rule(
    "shared-gradient-written", mechanism="write", when=Always(), group="region",
    after="checkpoint-saves-shifted",
)  # fmt: skip
def shared_gradient_written(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for the first write, in backward, to a gradient that another node receives.

    The other node starts after the write. It receives the gradient from the same node, or from a
    node that ran before the write and passed the gradient on, as ``clone`` and views do.
    """
    writes = [
        op
        for op in evidence.analysis.ops
        if op.phase == "backward" and op.written and not evidence.analysis.is_engine(op.stack_id)
    ]
    if not writes:
        return
    gradients = _IncomingGradients(evidence)
    for op in writes:
        found = gradients.affected_by(op)
        if found is not None:
            yield _shared_write(op, *found)


_Arrivals: TypeAlias = "dict[int, list[tuple[int, int, Edge]]]"
"""By source node, when a storage arrived from it, a number in this order, and along which edge."""


@dataclass(slots=True)
class _Given:
    """The receivers of one storage, as far as they were looked at."""

    next: int  # position of the first receiver that was not looked at
    waiting: list[tuple[int, NodeStarted]]  # with the event from which on nothing waits for it


class _IncomingGradients:
    """The gradients that nodes received, by storage.

    Writes are looked up oldest first. The cost of all of them is linear in the size of the
    recording, also if many nodes receive and write one storage.
    """

    def __init__(self, evidence: Evidence) -> None:
        analysis = evidence.analysis
        self._tensors = analysis.tensors
        self._ops = analysis.ops
        self._log = analysis.log
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
        self._arrivals: dict[int | None, _Arrivals] = {}
        self._given: dict[int | None, _Given] = {}

    def affected_by(self, op: Op) -> tuple[_Kind, Node, Node] | None:
        """Return a later receiver of a gradient, the node that passed it on, and how."""
        own = self._own_node(op)
        sources = {edge.source for edge in self._sources[own]} if own is not None else set()
        for tensor in op.written:
            if (own, tensor.storage_id) in self._offered:
                continue
            found = [self._arrival(tensor.storage_id, source, op.seq, own) for source in sources]
            later = [arrival for arrival in found if arrival is not None]
            if later:
                _, edge = min(later, key=itemgetter(0))
                return "shared", self._nodes[edge.source], self._nodes[edge.target]
            if own is not None and (pending := self._pending(op, tensor.storage_id, own)):
                return pending
        return None

    def _arrival(
        self, storage_id: int | None, source: int, seq: int, own: int | None
    ) -> tuple[int, Edge] | None:
        """Return the next arrival of a storage from a node at another one than ``own``."""
        arrivals = self._arrivals_of(storage_id).get(source, [])
        first = bisect_left(arrivals, seq, key=itemgetter(0))
        return next(
            ((number, edge) for _, number, edge in islice(arrivals, first, None)
             if edge.target != own),
            None,
        )  # fmt: skip

    def _arrivals_of(self, storage_id: int | None) -> _Arrivals:
        found = self._arrivals.get(storage_id)
        if found is None:
            found = self._arrivals[storage_id] = {}
            edges = (
                (event.seq, edge)
                for event, place in self._receivers.get(storage_id, ())
                for edge in self._sources[event.node_id]
                if edge.input == place
            )
            for number, (seq, edge) in enumerate(edges):
                found.setdefault(edge.source, []).append((seq, number, edge))
        return found

    def _pending(self, op: Op, storage_id: int | None, own: int) -> tuple[_Kind, Node, Node] | None:
        """Return a node that passed the storage on before the write, and one that waits for it."""
        for event in self._given_before(storage_id, op.seq):
            for edge in self._targets[event.node_id] if event.node_id != own else ():
                if edge.target != own and self._first_start(edge.target, event) > op.seq:
                    giver = self._nodes[event.node_id]
                    kind: _Kind = "shared" if len(self._targets[giver.node_id]) > 1 else "passed on"
                    return kind, giver, self._nodes[edge.target]
        return None

    def _given_before(self, storage_id: int | None, seq: int) -> list[NodeStarted]:
        """Return the receivers that passed a storage on, which others wait for at an event."""
        given = self._given.setdefault(storage_id, _Given(0, []))
        receivers = self._receivers.get(storage_id, ())
        while given.next < len(receivers) and receivers[given.next][0].seq <= seq:
            event, _ = receivers[given.next]
            given.waiting.append((self._awaited_until(event), event))
            given.next += 1
        given.waiting = [(end, event) for end, event in given.waiting if end > seq]
        return [event for _, event in given.waiting]

    def _awaited_until(self, event: NodeStarted) -> int:
        """Return the event from which on no node waits for the gradient that a node passed on.

        A node that makes a tensor passes nothing on, and a sum is another gradient.
        """
        storages = {self._tensors[tensor_id].storage_id for tensor_id in event.inputs}
        edges = self._targets[event.node_id]
        if len(storages) != 1 or (len(edges) > 1 and self._nodes[event.node_id].name not in _ADDS):
            return -1
        (storage_id,) = storages
        last_start = max((self._first_start(edge.target, event) for edge in edges), default=-1)
        for ops in (self._ops_of_node.get(event.node_id, ()), self._adds.get(storage_id, ())):
            for op in islice(ops, bisect_right(ops, event.seq, key=_seq), None):
                if op.written or not _storages(op.outputs) <= storages:
                    last_start = min(last_start, op.seq + 1)  # itself may be the write
                    break
        return last_start

    @cached_property
    def _offered(self) -> set[tuple[int | None, int | None]]:
        """The storages that the engine offered to a node, with it."""
        return {
            (event.node_id, self._tensors[tensor_id].storage_id)
            for event in self._log.of(GradientBuffersOffered)
            for tensor_id in event.tensor_ids
        }

    @cached_property
    def _ops_of_node(self) -> dict[int, list[Op]]:
        """The ops of each node's runs."""
        found: dict[int, list[Op]] = defaultdict(list)
        for op in self._ops:
            if op.backward_node_id is not None:
                found[op.backward_node_id].append(op)
        return found

    @cached_property
    def _adds(self) -> dict[int | None, list[Op]]:
        """The additions that read each storage."""
        found: dict[int | None, list[Op]] = defaultdict(list)
        for op in self._ops:
            for storage_id in _storages(op.inputs) if op.name in {"add", "add_"} else ():
                found[storage_id].append(op)
        return found

    def _first_start(self, node_id: int, event: NodeStarted) -> int:
        """Return the first start of a node in the backward of an event, -1 if it did not run."""
        return self._first_starts.get((node_id, event.backward_id), -1)

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


def _shared_write(op: Op, kind: _Kind, giver: Node, victim: Node) -> Draft:
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
