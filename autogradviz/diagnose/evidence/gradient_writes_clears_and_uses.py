"""Evidence about gradients: their lives, storages and steps, and those that fail ``verify``."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass, field
from math import prod
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from autogradviz.analysis.causal_graph import ZEROING
from autogradviz.analysis.op_calls_and_arguments import is_view
from autogradviz.diagnose.evidence.evidence import once_per_recording
from autogradviz.diagnose.evidence.requires_grad_flow import storages
from autogradviz.events import NO_ID, GradAccumulated, NodeStarted, StackSeen

if TYPE_CHECKING:
    from autogradviz.analysis import Op
    from autogradviz.diagnose.evidence.evidence import Evidence
    from autogradviz.events import OptimizerStepped


# --- the life of each leaf's gradient: computed, added to, cleared, used by a step ----------------
#
# A gradient that is cleared before any step used it is dropped. One that an optimizer used, and to
# which the next backward adds, is mixed with that of another step.


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


class StepGradients(NamedTuple):
    """The gradients that the tensors of an optimizer got since its step before."""

    step: OptimizerStepped
    got: dict[int, GradAccumulated]  # the last one of each tensor that got any

    @property
    def is_empty(self) -> bool:
        """Whether the step found no gradient."""
        return self.step.gradient_count == 0

    @property
    def lost_count(self) -> int | None:
        """How many of the gradients the optimizer did not find; None if unknown."""
        count = self.step.gradient_count
        return None if count is None else len(self.got) - count


@once_per_recording
def gradients_of_steps(evidence: Evidence) -> list[list[StepGradients]]:
    """Return the steps of each optimizer with what backwards computed for them, oldest first."""
    gradients, graph = accumulations(evidence), evidence.causal_graph
    found = []
    for steps in graph.steps_of_optimizers:
        ends = [-1, *(step.seq for step in steps)]
        found.append([
            StepGradients(step, {
                leaf: ours[-1]
                for leaf in graph.updated_in(step)
                if (ours := between(gradients.get(leaf, []), after, step.seq))
            })
            for after, step in zip(ends, steps, strict=False)
        ])  # fmt: skip
    return found


@once_per_recording
def unused_results_of_grad(evidence: Evidence) -> set[int]:
    """Return the tensors whose gradients ``autograd.grad`` returned, and that nothing updates.

    Every step of their optimizer found the gradients that backwards had accumulated, and no other:
    the program did not assign what was returned to ``grad``.
    """
    tensors = evidence.analysis.tensors
    requested = evidence.causal_graph.requested
    found: set[int] = set()
    for steps in gradients_of_steps(evidence) if requested else ():
        if all(each.step.gradient_count == len(each.got) for each in steps):
            got = {leaf for each in steps for leaf in each.got}
            found |= (requested.keys() & set(steps[0].step.tensor_ids)) - got
    return {
        each
        for each in found
        if not evidence.writes_between(
            tensors[each].storage_id, evidence.causal_graph.steps[0].seq, 1 << 62
        )
    }


@once_per_recording
def leaves_without_optimizer(evidence: Evidence) -> list[int]:
    """Return the leaves with gradients that no optimizer which stepped has, nor their memory."""
    graph = evidence.causal_graph
    held = {graph.memory(each) for each in graph.held}
    return [
        leaf
        for leaf in graph.got_gradient
        if leaf not in graph.held and graph.memory(leaf) not in held
    ]


def is_in_closure(evidence: Evidence, backward_id: int) -> bool:
    """Return whether an optimizer called a backward, whose gradients it then uses."""
    started = evidence.backward(backward_id)
    return started is not None and evidence.analysis.is_below_optimizer(started.stack_id)


class NextUse(NamedTuple):
    """The first gradient after an optimizer used the one before, and the use of the next."""

    used: Op | OptimizerStepped
    gradient: GradAccumulated
    again: Op | OptimizerStepped
    is_sum: bool  # all that was computed in between was added to what had been used


@once_per_recording
def next_uses(evidence: Evidence) -> dict[int, list[NextUse]]:
    """Return the next uses of the gradient of each leaf, oldest first.

    A use is an op of an optimizer, or its step, if no such op is recorded.
    """
    memory, adds = gradient_storages(evidence), gradient_adds(evidence)
    by_memory, graph = _uses_by_optimizers(evidence), evidence.causal_graph
    steps: dict[int, list[OptimizerStepped]] = defaultdict(list)
    for step in graph.steps:
        for leaf in graph.updated_in(step):
            steps[leaf].append(step)
    found: dict[int, list[NextUse]] = defaultdict(list)
    for leaf, events in accumulations(evidence).items():
        if len(events) == 1:
            continue
        ours = memory.get(leaf, set())
        ops = sorted({op.seq: op for each in ours for op in by_memory.get(each, ())}.items())
        later = (step for step in steps[leaf] if step.seq > events[0].seq)
        uses: list[Op | OptimizerStepped] = [op for _, op in ops] or list(later)
        seqs = [use.seq for use in uses]
        for event in events:
            at = bisect_left(seqs, event.seq)
            if 0 < at < len(uses) and not between(events, seqs[at - 1], event.seq):
                parts = between(events, seqs[at - 1], seqs[at])
                is_sum = _is_sum(evidence, adds, seqs[at - 1], parts, seqs[at], ours)
                found[leaf].append(NextUse(uses[at - 1], event, uses[at], is_sum))
    return found


def _uses_by_optimizers(evidence: Evidence) -> dict[int, list[Op]]:
    """Return the ops of optimizers that read each storage of a gradient, oldest first.

    Clipping does not count, nor do ops that write gradients, as those of ``zero_grad``.
    """
    reads, clips = gradient_reads(evidence), clipping_stacks(evidence)
    gradients = {each for memory in gradient_storages(evidence).values() for each in memory}
    return {
        storage_id: [
            op
            for op in ops
            if evidence.in_optimizer(op)
            and op.stack_id not in clips
            and not storages(op.written) & gradients
        ]
        for storage_id, ops in reads.items()
    }


def _is_sum(
    evidence: Evidence,
    adds: dict[int, list[Op]],
    start: int,
    parts: list[GradAccumulated],
    end: int,
    memory: set[int],
) -> bool:
    """Return whether all gradients between two uses were added to the one of the first use."""
    adding = set()
    before = start  # the gradient before, to which an op of an earlier backward added
    for event in parts:
        ours = [op for op in adds.get(event.node_id, ()) if before < op.seq < event.seq]
        before = event.seq
        if not any(storages(op.inputs) & memory for op in ours):
            return False  # it had been removed
        adding |= {op.seq for op in ours}
    return not any(
        op.seq not in adding and op.stack_id not in clipping_stacks(evidence)
        for storage_id in memory
        for op in evidence.writes_between(storage_id, start, end)
        if op.phase == "forward"
    )


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
    last = dict(evidence.analysis.log.fields(GradAccumulated, "tensor_id", "seq"))
    found = {}
    for leaf in zeroed_gradients(evidence):
        op = zeroed_by(evidence, leaf, last.get(leaf, -1))
        if op is not None:
            found[leaf] = op.seq
    return found


def zeroed_by(evidence: Evidence, leaf: int, after: int, before: int = 1 << 62) -> Op | None:
    """Return the op that zeroed a gradient between two events, if it is the last that wrote it."""
    writes = (
        op
        for storage_id in gradient_storages(evidence).get(leaf, ())
        for op in evidence.writes_between(storage_id, after, before)
    )
    last = max(writes, key=_seq, default=None)
    return (
        last if last is not None and last.seq in zeroed_gradients(evidence).get(leaf, ()) else None
    )


def _replay(events: list[tuple[int, str, GradientPart | None]]) -> GradientLife:
    """Return the life that a leaf's events describe."""
    life = GradientLife()
    used = False
    for place, (seq, kind, part) in enumerate(events):
        if part is not None:
            used = _add(life, part, used=used)
        elif kind == "step":
            if life.open and not used:
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
def gradients_of_backwards(evidence: Evidence) -> dict[int, dict[int, GradAccumulated]]:
    """Return the last gradient that each backward gave each leaf."""
    found: dict[int, dict[int, GradAccumulated]] = defaultdict(dict)
    for event in evidence.analysis.log.of(GradAccumulated):
        found[event.backward_id][event.tensor_id] = event
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
