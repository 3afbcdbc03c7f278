"""Evidence about gradients: their lives, storages and steps, and those that fail ``verify``."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass, field
from math import prod
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from autogradviz.analysis.causal_graph import ZEROING
from autogradviz.diagnose.evidence.facts import is_view, once_per_recording
from autogradviz.diagnose.evidence.requires_grad_flow import storages
from autogradviz.diagnose.text_formatting import in_module
from autogradviz.events import NO_ID, GradAccumulated, NodeStarted, StackSeen

if TYPE_CHECKING:
    from autogradviz.analysis import Node, Op, SourceLocation
    from autogradviz.diagnose.evidence.facts import Evidence
    from autogradviz.events import ChangedBy, FactKind, GradientFactFailed


# --- the life of each leaf's gradient: computed, added to, cleared, used by a step ----------------
#
# A gradient that is cleared before any step used it is dropped. One that a step used, and to which
# the next backward adds, is mixed with that of another step.


class GradientPart(NamedTuple):
    """A gradient that one backward gave a leaf."""

    seq: int
    backward_id: int
    added: bool  # to the gradient that the leaf had


@dataclass(slots=True)
class GradientLife:
    """The gradients of one leaf: computed, cleared, used."""

    dropped: list[tuple[GradientPart, int | None]] = field(
        default_factory=list
    )  # with what cleared it
    stale: list[GradientPart] = field(default_factory=list)  # added to one that a step had used
    windows: list[list[GradientPart]] = field(default_factory=list)  # what each step used
    open: list[GradientPart] = field(
        default_factory=list
    )  # what no later step used, and nothing cleared


@once_per_recording
def gradient_lives(evidence: Evidence) -> dict[int, GradientLife]:
    """Return the life of the gradient of each leaf that an optimizer has."""
    graph = evidence.causal_graph
    events: dict[int, list[tuple[int, str, GradientPart | None]]] = defaultdict(list)
    adds = _adds(evidence)
    for seq, backward_id, node_id, leaf in evidence.analysis.log.fields(
        GradAccumulated, "seq", "backward_id", "node_id", "tensor_id"
    ):
        if leaf in graph.held:
            start = graph.backwards.get(backward_id)
            first = start.seq if start is not None else 0
            added = any(first < each < seq for each in adds.get(node_id, ()))
            events[leaf].append((seq, "part", GradientPart(seq, backward_id, added)))
    for step in graph.steps:
        lost = step.gradient_count == 0
        for leaf in graph.updated_in(step):
            if leaf in events:
                events[leaf].append((step.seq, "empty" if lost else "step", None))
    for leaf, seqs in zeroed_gradients(evidence).items():
        if leaf in events:
            events[leaf] += [(seq, "zero", None) for seq in seqs]
    return {leaf: _replay(sorted(each, key=lambda e: e[0])) for leaf, each in events.items()}


@once_per_recording
def leaves_in_use(evidence: Evidence) -> set[int]:
    """Return the leaves whose gradients something else than an optimizer uses."""
    memory = gradient_storages(evidence)
    used = gradients_in_use(evidence, {each for found in memory.values() for each in found})
    return {leaf for leaf, found in memory.items() if found & used}


def _adds(evidence: Evidence) -> dict[int, list[int]]:
    """Return the events of the ops by which each node adds to the gradient of its leaf."""
    return {
        node_id: [op.seq for op in ops if not evidence.in_optimizer(op)]
        for node_id, ops in gradient_adds(evidence).items()
    }


@once_per_recording
def zeroed_gradients(evidence: Evidence) -> dict[int, list[int]]:
    """Return the events that zeroed the gradient of each leaf in place."""
    graph = evidence.causal_graph
    leaf_of = {s: leaf for leaf, found in gradient_storages(evidence).items() for s in found}
    found: dict[int, list[int]] = defaultdict(list)
    for index, name in enumerate(graph.op_names):
        if name in ZEROING and graph.phases[index] == "forward":
            for tensor_id in graph.written[index]:
                leaf = leaf_of.get(graph.memory(tensor_id))
                if leaf is not None:
                    found[leaf].append(graph.op_seqs[index])
    return found


@once_per_recording
def cleared_gradients(evidence: Evidence) -> dict[int, int]:
    """Return the event that zeroed the gradient of each leaf for good.

    It is after the last accumulation, and nothing wrote the gradient afterwards.
    """
    graph = evidence.causal_graph
    last = dict(evidence.analysis.log.fields(GradAccumulated, "tensor_id", "seq"))
    zeroed = {
        leaf: max(seqs)
        for leaf, seqs in zeroed_gradients(evidence).items()
        if max(seqs) > last.get(leaf, -1)
    }
    if not zeroed:
        return {}
    storages = gradient_storages(evidence)
    leaf_of = {memory: leaf for leaf in zeroed for memory in storages[leaf]}
    for index, written in enumerate(graph.written):
        for tensor_id in written:
            leaf = leaf_of.get(graph.memory(tensor_id))
            if leaf in zeroed and graph.op_seqs[index] > zeroed[leaf]:
                del zeroed[leaf]
    return zeroed


def _replay(events: list[tuple[int, str, GradientPart | None]]) -> GradientLife:
    """Return the life that a leaf's events describe."""
    life = GradientLife()
    used = False
    for place, (seq, kind, part) in enumerate(events):
        if part is not None:
            used = _add(life, part, used=used)
        elif kind == "step":
            if life.open and not used:
                # The first may add to a gradient from before the recording, of the same step.
                life.stale += life.open[:1] if life.open[0].added and life.windows else []
                life.windows.append(list(life.open))
            used = bool(life.open)
        else:  # cleared: in place, or before a step that found nothing
            later = (s for s, k, _ in events[place + 1 :] if k != "zero")
            cause = seq if kind == "empty" else next(later, None)
            if not used:
                life.dropped += [(each, cause) for each in life.open]
            life.open, used = [], False
    if used:
        life.open = []
    return life


def _add(life: GradientLife, part: GradientPart, *, used: bool) -> bool:
    """Add a gradient to a life; return False: no step has used it."""
    if not part.added:  # the one before it had been cleared
        if not used:
            life.dropped += [(each, part.seq) for each in life.open]
        life.open = [part]
    elif used:
        life.open = [part]  # it contains what a step has used
    else:
        life.open.append(part)
    return False


# --- gradient storages and steps ------------------------------------------------------------------
#
# Gradients of leaves: the memory that they are in, and the steps of optimizers that use them.


_ADDING: Final = frozenset({"add", "add_"})
_CLEARING: Final = ZEROING | {"fill_"}
UNSCALE: Final = "_amp_foreach_non_finite_check_and_unscale_"
"""The op by which a ``GradScaler`` divides gradients by its scale."""

_CLIPPING: Final = "torch/nn/utils/clip_grad.py"
_seq = attrgetter("seq")


@once_per_recording
def accumulations(evidence: Evidence) -> dict[int, list[GradAccumulated]]:
    """Return the gradients that each leaf got, oldest first, by tensor id."""
    found: dict[int, list[GradAccumulated]] = defaultdict(list)
    for event in sorted(evidence.analysis.log.of(GradAccumulated), key=_seq):
        found[event.tensor_id].append(event)
    return found


@once_per_recording
def gradient_storages(evidence: Evidence) -> dict[int, set[int]]:
    """Return the storages that may be in the ``.grad`` of each leaf, by tensor id.

    ``AccumulateGrad`` keeps the gradient that it receives, or a copy that it makes.
    """
    analysis = evidence.analysis
    leaf_of = dict(analysis.log.fields(GradAccumulated, "node_id", "tensor_id"))
    found: dict[int, set[int]] = defaultdict(set)
    for node_id, inputs in analysis.log.fields(NodeStarted, "node_id", "inputs"):
        if node_id in leaf_of:
            found[leaf_of[node_id]] |= storages(
                analysis.tensors[tensor_id] for tensor_id in inputs if tensor_id != NO_ID
            )
    for op in analysis.ops:
        if op.phase == "backward" and op.backward_node_id in leaf_of:
            found[leaf_of[op.backward_node_id]] |= storages(op.outputs)
    return found


@once_per_recording
def gradient_reads(evidence: Evidence) -> dict[int, list[Op]]:
    """Return the forward ops that read each storage of a gradient, oldest first."""
    gradients = {each for memory in gradient_storages(evidence).values() for each in memory}
    found: dict[int, list[Op]] = defaultdict(list)
    for op, keys in zip(evidence.analysis.ops, evidence.causal_graph.inputs_memory, strict=True):
        if not gradients.isdisjoint(keys) and op.phase == "forward":
            for storage_id in gradients.intersection(keys):
                found[storage_id].append(op)
    return found


@once_per_recording
def gradient_adds(evidence: Evidence) -> dict[int, list[Op]]:
    """Return the ops by which the nodes of leaves add to a gradient, oldest first, by node."""
    node_ids = set(evidence.analysis.log.column(GradAccumulated, "node_id"))
    found: dict[int, list[Op]] = defaultdict(list)
    for op in evidence.analysis.ops:
        node_id = op.backward_node_id
        if op.name in _ADDING and node_id is not None and node_id in node_ids:
            found[node_id].append(op)
    return found


def between(events: list[GradAccumulated], after: int, before: int) -> list[GradAccumulated]:
    """Return the events between two event numbers."""
    first = bisect_left(events, after, key=_seq)
    return events[first : bisect_left(events, before, lo=first, key=_seq)]


@once_per_recording
def clipping_stacks(evidence: Evidence) -> set[int]:
    """Return the stacks of ops that PyTorch's functions for clipping gradients call themselves."""
    return {
        each
        for each in evidence.analysis.log.column(StackSeen, "stack_id")
        if evidence.analysis.calling_file(each).endswith(_CLIPPING)
    }


def gradients_in_use(evidence: Evidence, gradients: set[int]) -> set[int]:
    """Return the storages of gradients that are used for something.

    Norms and other single numbers, clipping, clearing and exchanges with other ranks do not count.
    """
    reads = gradient_reads(evidence)
    return {
        storage_id
        for storage_id in gradients & reads.keys()
        if any(not evidence.in_optimizer(op) and not _only_looks(op) for op in reads[storage_id])
    }


def _only_looks(op: Op) -> bool:
    exchange = op.overload.startswith(("c10d.", "_c10d_functional."))
    number = bool(op.outputs) and all(prod(tensor.shape) == 1 for tensor in op.outputs)
    return exchange or op.name in _CLEARING or is_view(op) or (number and not op.written)


# --- gradients that a recording with ``verify`` found to be wrong, or changed on purpose ----------


_CHANGED: Final = {
    "hook": "a hook",
    "straight-through": "a custom Function that passes gradients where the derivative is zero",
    "gradient function": "a custom Function that only changes the gradient",
    "rounding hooks": "a pair of saved-tensor hooks that rounds",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedFact:
    """A gradient that is not the one that follows from the recorded forward.

    Attributes:
        fact: "node" (a node returned another gradient than the derivative of its op), "edge" (a
            node received another gradient than the sum of what was sent to it) or "leaf" (``.grad``
            did not grow by what arrived).
        node: the name of the autograd node.
        module: the module that made it.
        location: the line that made it.
        relative_error: the L2 norm of the difference, relative to the larger gradient; infinite if
            one of them is not finite.
        changed_by: "hook", "straight-through", "gradient function" or "rounding hooks" if the
            program changed it on purpose; "" if it is wrong.
        saved_tensor: the saved tensor of the node whose content is not that of the forward, "" if
            none was found.
        writer: the line that wrote that tensor, or an input of the op, between forward and
            backward; None if none is recorded.
        parameters: the parameters that the gradient reaches.
        event: the sequence number of the event.

    Example:
        >>> trace.certificate().failed
        ()
    """

    fact: FactKind
    node: str
    module: str
    location: SourceLocation | None
    relative_error: float
    changed_by: ChangedBy
    saved_tensor: str
    writer: SourceLocation | None
    parameters: tuple[str, ...]
    event: int

    def __str__(self) -> str:
        where = f"{self.location}" if self.location is not None else "an unknown line"
        text = f"{where}: {self.statement}"
        if self.writer is not None:
            text += f"; written at {self.writer}"
        return text

    @property
    def statement(self) -> str:
        """The error in one sentence, without a period."""
        node = f"{self.node}{in_module(self.module)}"
        size = f"{self.relative_error:.1%}" if self.relative_error < 10 else "more than 1,000 %"  # noqa: PLR2004
        if self.changed_by:
            return f"{_CHANGED[self.changed_by]} changed the gradient of {node} by {size}"
        if self.fact == "edge":
            return f"{node} received a gradient that is off by {size} from the sum of its parts"
        if self.fact == "leaf":
            name = ", ".join(self.parameters) or "a leaf"
            return f"the gradient of {name} did not grow by what arrived; it is off by {size}"
        slot = f'; its saved tensor "{self.saved_tensor}" has changed' if self.saved_tensor else ""
        return f"{node} returned a gradient that is off by {size} from its derivative{slot}"


def read_fact(evidence: Evidence, event: GradientFactFailed) -> FailedFact:
    """Return the gradient that an event reports."""
    analysis = evidence.analysis
    node = analysis.graph.nodes[event.node_id]
    origin = node if event.tensor_id is None else _feeding(evidence, node)
    names = evidence.causal_graph.parameters
    if event.tensor_id is not None:
        reached = {event.tensor_id} & names.keys()
    else:
        reached = evidence.causal_graph.reached_leaves(event.node_id)
    return FailedFact(
        fact=event.fact,
        node=node.name,
        module=origin.module,
        location=origin.location,
        relative_error=float("inf") if event.relative_error is None else event.relative_error,
        changed_by=event.changed_by,
        saved_tensor=event.written_slot,
        writer=None if event.changed_by else find_writer(evidence, event),
        parameters=tuple(sorted({names[each] for each in reached})),
        event=event.seq,
    )


def _feeding(evidence: Evidence, leaf: Node) -> Node:
    """Return the newest node that sends its gradient to a leaf; the leaf itself if none does."""
    nodes = evidence.analysis.graph.nodes
    sources = [nodes[edge.source] for edge in evidence.edges_to[leaf.node_id]]
    known = [node for node in sources if node.location is not None]
    return max(known, key=lambda node: node.order, default=leaf)


def find_writer(evidence: Evidence, event: GradientFactFailed) -> SourceLocation | None:
    """Return the line that last wrote what a node needs, between its op and its run."""
    node = evidence.analysis.graph.nodes[event.node_id]
    if event.fact != "node" or node.op is None:
        return None
    tensors = [saved.tensor for saved in node.saved if saved.slot == event.written_slot]
    tensors = tensors or [*node.op.inputs, *node.op.outputs]
    writes = [
        op
        for storage_id in dict.fromkeys(tensor.storage_id for tensor in tensors)
        for op in evidence.writes_between(storage_id, node.op.seq, event.seq)
        if op.location is not None
    ]
    return max(writes, key=lambda op: op.seq).location if writes else None
