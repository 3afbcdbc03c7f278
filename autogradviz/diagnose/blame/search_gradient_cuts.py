"""Cuts: values that depend on parameters, and reach a loss, without their gradient.

A cut is the difference of two slices. The value slice of a loss is what it was computed from; the
gradient slice is what its backward reaches. Where a node of the gradient slice reads a value that
has no gradient path, the slice of that value is followed to the ops that read a tensor with a graph
and made none. No list of functions is needed: an op is a cut because of what it did.
"""

from __future__ import annotations

import ast
import struct
from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from math import frexp, isfinite
from typing import TYPE_CHECKING, Final

from autogradviz.analysis.causal_graph import NO_OP
from autogradviz.diagnose.blame.gradients_lost import CREATING, NUMBERS, NumberReads
from autogradviz.diagnose.evidence.evidence import once_per_recording
from autogradviz.diagnose.evidence.requires_grad_flow import Flow, fix_of
from autogradviz.diagnose.source import source_index as source
from autogradviz.diagnose.source.assignments import (
    line_that_chooses,
    names_assigned,
    names_read,
)
from autogradviz.diagnose.source.source_index import assigned_names, leaves_torch
from autogradviz.events import NO_ID, BackwardStarted, FunctionMarked

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Region, SourceLocation
    from autogradviz.analysis.causal_graph import CausalGraph
    from autogradviz.diagnose.evidence.evidence import Evidence
    from autogradviz.diagnose.evidence.requires_grad_flow import EndKind
    from autogradviz.events import ModeChanged

COMPARING: Final = frozenset(
    {
        "sub", "rsub", "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "kl_div",
        "binary_cross_entropy", "binary_cross_entropy_with_logits",
    }
)  # fmt: skip
"""Operators that compare the elements of two tensors."""
ADDING: Final = frozenset({"add", "add_", "sub", "sub_", "rsub"})
_OPERANDS: Final = 2  # of a difference
_WRITTEN_BITS: Final = 14  # of the significand of a number that is written in a program
_LARGEST: Final = 3e38  # of float32
_LOOK_BACK: Final = 4000  # ops before a number is used, among which its source is searched
_SCALING: Final = "_amp_"  # how the names of the ops of loss scalers begin
_CONVERTING: Final = "Module._apply"  # the function that converts and moves a module's parameters
_ZERO_DERIVATIVE: Final = frozenset(
    {"round", "floor", "ceil", "trunc", "sign", "heaviside", "fix", "floor_divide", "sgn"}
)
"""Ops whose derivative is zero wherever it exists."""


@dataclass(slots=True)
class Cut:
    """The cuts of one kind on one line."""

    kind: EndKind
    location: SourceLocation
    others: list[SourceLocation] = field(default_factory=list)
    ops: dict[int, None] = field(default_factory=dict)
    readers: dict[int, None] = field(default_factory=dict)  # ops of the loss that read the values
    effective: bool = False  # without the cut, there would be a gradient
    passed: bool = True  # the gradient passes beside it: x + (y - x).detach()
    requested: bool = True  # the program asks for the gradients of the leaves behind it
    single: bool = True  # only single numbers pass
    has_other_way: bool = True  # the loss reads each value with its gradient as well
    detached: bool = True  # what is computed from the values is detached as well: they are meant


@once_per_recording
def gradient_cuts(evidence: Evidence) -> list[Cut]:
    """Return the lines at which values lose their gradient on the way to a loss, in order."""
    cuts = CutSearch(evidence).all()
    for cut in cuts:
        _end_at_integers(evidence.causal_graph, cut)
    _explain_targets(evidence, cuts)
    return cuts


def _end_at_integers(graph: CausalGraph, cut: Cut) -> None:
    """Make a detach inside of an op that returns integers a cut by that op.

    Some ops are recorded as the ops that they consist of: a detach, and the op itself.
    """
    made = [index + 1 for index in cut.ops if index + 1 < len(graph.op_names)]
    if (
        cut.kind == "detach"
        and "detach" not in cut.location.text
        and len(made) == len(cut.ops)
        and all(
            graph.analysis.location(graph.stacks[index]) == cut.location
            and not set(graph.inputs[index]).isdisjoint(graph.outputs[index - 1])
            and graph.differentiable.isdisjoint(graph.outputs[index])
            for index in made
        )
    ):
        cut.kind, cut.ops = "integers", dict.fromkeys(made)


def _explain_targets(evidence: Evidence, cuts: list[Cut]) -> None:
    """Make other cuts explain the parameters behind detached targets, those by integers last.

    A target is detached on purpose, as in the commitment term of a quantizer. An index is no
    cause while others explain what is missing.
    """
    graph = evidence.causal_graph
    known = graph.got_gradient.keys() | graph.not_reached_yet | graph.requested.keys()
    lost = {
        id(cut): behind
        for cut in cuts
        if cut.kind != "zero" and (cut.effective or cut.kind == "integers")
        if (behind := graph.parameters_behind(max(cut.ops)) - known)
    }
    cuts = [cut for cut in cuts if id(cut) in lost]
    integers = [cut for cut in cuts if not cut.effective]
    targets = [cut for cut in cuts if cut.effective and _is_target(graph, cut)]
    others = [cut for cut in cuts if cut.effective and cut not in targets]
    by_others = {each for cut in others for each in lost[id(cut)]}
    of_targets = {each for cut in targets for each in lost[id(cut)]} - by_others
    for cut in integers:
        cut.effective = not lost[id(cut)].isdisjoint(of_targets)
    by_integers = {each for cut in integers if cut.effective for each in lost[id(cut)]}
    for target in targets:
        behind = lost[id(target)]
        by_comparison = _compared(graph, target) == set(target.readers)
        target.effective = not (
            behind <= by_integers or (by_comparison and behind <= by_others | by_integers)
        )


def _is_target(graph: CausalGraph, cut: Cut) -> bool:
    """Return whether the loss compares detached values, or adds a term that is computed of them."""
    compared = _compared(graph, cut)
    adding = {each for each in cut.readers if graph.op_names[each] in ADDING}
    terms = {each for each in adding if graph.size(graph.outputs[each]) == 1}
    return cut.kind == "detach" and bool(compared) and compared | terms == cut.readers.keys()


def _compared(graph: CausalGraph, cut: Cut) -> set[int]:
    """Return the ops that compare the values of a cut with others, which have a gradient."""
    return {each for each in cut.readers if graph.op_names[each] in COMPARING}


@once_per_recording
def ends_of_paths(evidence: Evidence) -> dict[int, tuple[Cut, int]]:
    """Return the last cut of the gradient paths from the losses to each parameter, and its op."""
    found: dict[int, tuple[Cut, int]] = {}
    for cut in sorted(gradient_cuts(evidence), key=lambda cut: max(cut.ops)):
        if cut.effective and cut.kind != "zero":
            index = max(cut.ops)
            behind = evidence.causal_graph.parameters_behind(index)
            found.update(dict.fromkeys(behind, (cut, index)))
    return found


def fix_of_cut(evidence: Evidence, line: Cut) -> str:
    """Return the change; a detached value that two losses read is detached for one of them."""
    stacks = evidence.causal_graph.stacks
    places = {evidence.analysis.user_stack(stacks[each]) for each in line.readers} - {()}
    names = assigned_names(line.location.text)
    if line.kind == "detach" and leaves_torch(line.location):
        names = frozenset()
    if line.kind != "detach" or len(places) < 2 or len(names) != 1:  # noqa: PLR2004
        return fix_of(line.kind, line.location)
    (name,) = names
    return (
        "# leave the detach out here, if one of the losses wants the gradient,\n"
        f"# and write {name}.detach() where the others read it"
    )


class CutSearch:
    """Follows values that backward does not reach to the ops at which they lost their graph."""

    def __init__(self, evidence: Evidence) -> None:
        self._graph = evidence.causal_graph
        self._evidence = evidence
        self._flow = Flow(evidence)
        self.passed: dict[int, None] = {}
        """The ops without a node that pass on a value of a root without a graph."""
        self.sources: dict[int, None] = {}
        """Those of them that read no other value; ``NO_OP`` for values from before."""
        self.unexplained: dict[int, None] = {}
        """The ops that read a value with a graph and return one without, for no known reason."""
        self._lost = False  # whether a root without a graph is followed
        self._lines: dict[tuple[str, SourceLocation], Cut] = {}
        self._explored: set[tuple[int, int, bool, frozenset[int]]] = set()
        self._integers = False  # whether the path that is followed leads through integers
        self._alone = False  # whether it begins at a leaf which is all that its loss depends on
        self._requested = False  # whether it begins at a leaf whose gradient the program asks for
        self._detached = NO_OP  # the last detach on it

    def all(self) -> list[Cut]:
        """Return all cuts."""
        graph = self._graph
        for index in graph.slice_ops:
            if graph.op_names[index] in _ZERO_DERIVATIVE:
                self._integers = False
                self._add("zero", index, index, self._place(index))
                continue
            for position in self._unconnected(index):
                leaf = self._new_leaf_edge(index, position)
                self._alone = leaf and index in self._without_parameters
                self._requested = leaf and graph.inputs[index][position] in self._only_requested
                self._explore(index, position, index)
            self._alone = self._requested = False
            for each in self._written(index):
                self._explore(*each, index)
        for started in graph.analysis.log.of(BackwardStarted):
            self._follow_roots(started)
        self._leaves_of_functions()
        self._numbers_in_statements()
        self._numbers_of_tensors()
        return list(self._lines.values())

    def of_loss(self, started: BackwardStarted) -> list[Cut]:
        """Return the cuts behind the roots of a backward that have no graph."""
        self._lost = True
        self._follow_roots(started)
        return list(self._lines.values())

    def _follow_roots(self, started: BackwardStarted) -> None:
        """Follow the roots of a backward that have no node."""
        graph = self._graph
        nodes = started.root_ids or (NO_ID,) * len(started.root_tensor_ids)
        for tensor_id, node_id in zip(started.root_tensor_ids, nodes, strict=False):
            made = NO_OP
            if node_id == NO_ID and tensor_id != NO_ID:
                made = graph.producer_before(tensor_id, started.seq)
            if made != NO_OP and graph.numbers[made] is None:
                self._alone = True
                for each in self._inputs_of(made, made):
                    self._explore(*each, made)
                self._alone = False
            elif made != NO_OP and self._lost:
                self._end_at_producer(made, tensor_id, made)

    def _leaves_of_functions(self) -> None:
        """Add the new leaves that custom Functions read: ops inside a Function have no nodes."""
        graph = self._graph
        nodes = graph.gradient_slice & graph.leaves.keys()
        leaves = {graph.leaves[node] for node in nodes if self._is_new_leaf(node)}
        inside = (i for i in sorted(graph.value_slice) if i not in graph.node_of_op)
        for index in inside if leaves else ():
            for position, tensor_id in enumerate(graph.inputs[index]):
                made = max(graph.views(index)[position], graph.producers(index)[position])
                if tensor_id in leaves and made != NO_OP and graph.numbers[made] is not None:
                    leaves.discard(tensor_id)
                    self._integers = False
                    self._end_at_leaf(index, index, made)

    def _unconnected(self, index: int) -> Iterator[int]:
        """Yield the inputs of an op of the gradient slice to which no gradient flows."""
        graph = self._graph
        edges = graph.next_nodes.get(graph.node_of_op[index], ())
        given = graph.inputs[index]
        floats = [p for p, tensor in enumerate(given) if tensor in graph.differentiable]
        if len(edges) == len(given):
            aligned = list(enumerate(edges))
        elif len(edges) == len(floats):
            aligned = list(zip(floats, edges, strict=True))
        else:
            yield from self._uncovered(given, edges, floats)
            return
        reached = {position for position, _ in aligned}
        for position in range(len(given)):
            if position not in reached:
                yield position
        for position, target in aligned:
            if target == NO_ID or self._is_new_leaf(target):
                yield position

    def _uncovered(
        self, given: tuple[int, ...], edges: tuple[int, ...], floats: list[int]
    ) -> Iterator[int]:
        """Yield the inputs that no edge leads to, where edges and inputs do not correspond."""
        graph = self._graph
        covered: set[int] = set()
        for target in edges:
            if target in graph.op_of_node:
                covered |= {graph.memory(t) for t in graph.outputs[graph.op_of_node[target]]}
            elif self._is_new_leaf(target):
                continue
            elif target in graph.leaves:
                covered.add(graph.memory(graph.leaves[target]))
            elif target != NO_ID:
                return  # a custom Function: the tensors that it returned are not known
        spare = len(floats) - len(edges)
        missing = [p for p in floats if graph.memory(given[p]) not in covered]
        yield from (p for p in range(len(given)) if p not in floats)
        if len(missing) > max(0, spare):
            yield from missing

    def _written(self, index: int) -> Iterator[tuple[int, int]]:
        """Yield the values that the user's ops without a node wrote into an op's inputs."""
        graph = self._graph
        for key, producer in zip(graph.inputs_memory[index], graph.producers(index), strict=True):
            if (
                producer != NO_OP
                and graph.numbers[producer] is None
                and graph.phases[producer] == "forward"
                and graph.is_users(producer)
                and graph.written[producer]
                and key not in graph.registered_memory
            ):
                for position in graph.value_inputs(producer):
                    if graph.inputs_memory[producer][position] != key:
                        yield producer, position

    def _is_new_leaf(self, node_id: int) -> bool:
        tensor_id = self._graph.leaves.get(node_id)
        if tensor_id is None or node_id in self._inner:
            return False
        return self._graph.memory(tensor_id) not in self._graph.registered_memory

    @cached_property
    def _without_parameters(self) -> set[int]:
        """The ops of losses from which backward reaches new leaves, and no trained parameter.

        A loss that depends on such a leaf alone is computed with the parameters through it, or not
        at all: integers between them are no index or target beside another way.
        """
        graph = self._graph
        found: set[int] = set()
        trained: set[int] = set()
        for started in graph.analysis.log.of(BackwardStarted):
            nodes = graph.reachable(started.root_ids or ())
            leaves = {graph.leaves[each] for each in nodes & graph.leaves.keys()}
            known = any(graph.memory(each) in graph.registered_memory for each in leaves)
            (trained if known or not started.accumulate else found).update(nodes)
        return {graph.op_of_node[each] for each in found - trained if each in graph.op_of_node}

    @cached_property
    def _only_requested(self) -> set[int]:
        """The tensors whose gradients ``autograd.grad`` returned, and that got none otherwise."""
        return self._graph.requested.keys() - self._graph.got_gradient.keys()

    @cached_property
    def _inner(self) -> set[int]:
        """The nodes that only backwards inside of other backwards reach.

        A Function that runs its forward again makes leaves of its inputs, and returns the gradients
        of these leaves: no gradient ends there.
        """
        started = list(self._graph.analysis.log.of(BackwardStarted))
        inner, outer = (
            self._graph.reachable(
                node_id
                for each in started
                if (each.parent_backward_id is None) == is_outer
                for node_id in each.root_ids or ()
            )
            for is_outer in (False, True)
        )
        return inner - outer

    def _explore(self, index: int, position: int, reader: int) -> None:
        """Follow a value without a gradient path to the ops at which the path ends."""
        waiting = [(index, position, False, NO_OP)]
        known = self._graph.differentiable
        updated = self._graph.updated_after(reader)
        while waiting:
            at, place, integers, detached = waiting.pop()
            self._integers = integers or self._graph.inputs[at][place] not in known
            self._detached = at if self._graph.op_names[at] == "detach" else detached
            key = (at, place, self._integers, updated)
            if key not in self._explored:
                self._explored.add(key)
                before = self._before(at, place, reader)
                waiting += [(*each, self._integers, self._detached) for each in before]

    def _before(self, index: int, position: int, reader: int) -> list[tuple[int, int]]:
        """Return the inputs that an input was computed from, [] if its gradient path ends here."""
        graph = self._graph
        if graph.op_names[index] == "detach" and self._graph.has_graph(index, position):
            self._end(index, reader)
            return []
        view = graph.views(index)[position]
        if view > graph.producers(index)[position] and graph.numbers[view] is None:
            # The tensor that was read is a view without a graph, unless a mode explains it.
            in_slice = index in graph.node_of_op
            by_mode = not in_slice and self._mode(index) is not None
            if by_mode and self._graph.has_graph(index, position):
                self._end(index, reader)
                return []
            if graph.phases[view] == "forward":
                return self._inputs_of(view, reader)
        return self._before_producer(index, position, reader)

    def _before_producer(self, index: int, position: int, reader: int) -> list[tuple[int, int]]:
        """Return the inputs of the op that produced the value of an input, as ``_before`` does."""
        graph = self._graph
        in_slice = index in graph.node_of_op
        producer = graph.producers(index)[position]
        key = graph.inputs_memory[index][position]
        if key in graph.registered_memory or producer == NO_OP:
            self.sources[NO_OP] = None
            if not in_slice and key in graph.parameter_memory and not self._end(index, reader):
                self._end_at_detach(reader)
        elif graph.numbers[producer] is None:
            return self._inputs_of(producer, reader)
        elif not in_slice:
            if not self._end(index, reader):
                self._end_at_producer(producer, graph.inputs[index][position], reader, index)
        elif self._new_leaf_edge(index, position):
            self._end_at_leaf(index, reader, self._made_leaf(index))
        return []

    def _inputs_of(self, index: int, reader: int) -> list[tuple[int, int]]:
        """Return the inputs whose values an op without a node passes on.

        Optimizers and loss scalers keep what they compute from gradients for themselves.
        """
        graph = self._graph
        scales = graph.op_names[index].startswith(_SCALING)
        if scales or self._evidence.analysis.in_optimizer(graph.stacks[index]):
            return []
        self.passed[index] = None
        marked = next((t for t in graph.outputs[index] if t in self._marked), None)
        if self._lost and marked is not None:
            self._add("marked", index, reader, self._marked[marked])
            return []
        found = [(index, position) for position in graph.value_inputs(index)]
        if graph.phases[index] == "forward" and graph.op_names[index] in CREATING:
            if self._lost and set(graph.producers(index)) == {NO_OP}:
                made = max(graph.views(index))
                if made != NO_OP:  # torch.tensor detaches what it made
                    return self._inputs_of(made, reader)
                found = []
            if not self._lost and self._end_at_numbers(index, reader):
                return []
        if not found:
            self.sources[index] = None
        return found

    @cached_property
    def _marked(self) -> dict[int, SourceLocation | None]:
        """The lines that called ``mark_non_differentiable``, by tensor."""
        analysis = self._evidence.analysis
        return {
            tensor_id: analysis.location(event.stack_id)
            for event in analysis.log.of(FunctionMarked)
            if event.mark == "mark_non_differentiable"
            for tensor_id in event.tensor_ids
        }

    def _new_leaf_edge(self, index: int, position: int) -> bool:
        graph = self._graph
        tensor_id = graph.inputs[index][position]
        return any(
            graph.leaves.get(target) == tensor_id and self._is_new_leaf(target)
            for target in graph.next_nodes.get(graph.node_of_op[index], ())
        )

    def _end(self, index: int, reader: int) -> bool:
        """Record that the gradient path ends at an op which read a tensor with a graph."""
        graph, analysis = self._graph, self._evidence.analysis
        op = analysis.op_at(graph.op_seqs[index])
        if op is None:
            return False
        if op.phase == "backward":
            started = graph.backward_of(index)
            if started is not None and not started.create_graph:
                stack = analysis.user_stack(started.stack_id)
                place = line_that_chooses("create_graph", stack)
                self._add("backward", index, reader, place, stack_id=started.stack_id)
            return True
        region = self._regions.get(op.region_id) if self._lost else None
        end = self._flow.end_at(op, set()) if op.phase == "forward" else None
        functions = [frame.function for frame in analysis.stack(op.stack_id)]
        if region is not None:
            self._add("reentrant", index, reader, region.location)
        elif end is not None and (end.kind != "mode" or _CONVERTING not in functions):
            self._add(end.kind, index, reader, end.culprit)
        return region is not None or end is not None

    def _end_at_producer(
        self, producer: int, tensor_id: int, reader: int, index: int | None = None
    ) -> None:
        """Record why an op with a node returned a tensor that has no graph, if it is known."""
        op = self._evidence.analysis.op_at(self._graph.op_seqs[producer])
        if tensor_id not in self._graph.differentiable:
            self._add("integers", producer, reader, self._place(producer))
        elif op is not None and self._flow.writes_via_data(op, set()):
            self._add("detach", producer, reader, op.location)
        elif not self._end_at_detach(reader) and index is not None:
            self.unexplained[index] = None

    def _end_at_detach(self, reader: int) -> bool:
        """Record that the path ends at a detach of what a custom Function returned.

        The ops inside of a Function have no nodes, whether or not its result has one. A Function
        may detach what it keeps for its backward.
        """
        at = self._detached
        frames = () if at == NO_OP else self._evidence.analysis.stack(self._graph.stacks[at])
        if at == NO_OP or any(_method(each) in self._forwards for each in frames):
            return False
        self._add("detach", at, reader, self._place(at))
        return True

    @cached_property
    def _forwards(self) -> set[str]:
        """The forwards of custom Functions, as "Class.forward"."""
        names = self._evidence.analysis.custom_functions.values()
        return {f"{name}.forward" for name in names}

    @cached_property
    def _regions(self) -> dict[int | None, Region]:
        """The reentrant regions."""
        return {r.region_id: r for r in self._evidence.analysis.regions if r.reentrant}

    def _end_at_leaf(self, index: int, reader: int, made: int | None) -> None:
        """Record that a gradient path ends in a new leaf, which an op made."""
        at = self._graph.stacks[index if made is None else made]
        self._add("leaf", index, reader, self._evidence.analysis.location(at))

    def _add(
        self,
        kind: EndKind,
        index: int,
        reader: int,
        location: SourceLocation | None,
        source_op: int | None = None,
        stack_id: int | None = None,
    ) -> None:
        graph, analysis = self._graph, self._evidence.analysis
        stack_id = graph.stacks[index] if stack_id is None else stack_id
        if location is None or not analysis.user_stack(stack_id):
            return
        line = self._lines.setdefault((kind, location), Cut(kind, location))
        cut = index if source_op is None else source_op
        line.ops[cut] = None
        line.readers[reader] = None
        line.effective |= (not self._integers or self._alone) and not graph.outlived(cut, reader)
        line.passed &= kind == "detach" and self._passes_through(cut, reader)
        line.has_other_way &= kind == "detach" and self._has_other_way(cut)
        line.requested &= self._requested
        line.detached &= self._detached != NO_OP
        line.single &= graph.size(graph.outputs[index]) <= len(graph.outputs[index])
        here = analysis.location(stack_id) if kind == "mode" else None
        if here is not None and here not in line.others and here != location:
            line.others.append(here)

    def _passes_through(self, cut: int, reader: int) -> bool:
        """Return whether an op adds a value from which the detached difference subtracts it."""
        graph = self._graph
        difference = graph.producers(cut)[0] if graph.producers(cut) else NO_OP
        if graph.op_names[reader] != "add" or difference == NO_OP:
            return False
        if graph.op_names[difference] != "sub" or len(graph.inputs[difference]) < _OPERANDS:
            return False
        added = zip(graph.inputs_memory[reader], graph.producers(reader), strict=True)
        return (graph.inputs_memory[difference][1], graph.producers(difference)[1]) in list(added)

    def _has_other_way(self, cut: int) -> bool:
        """Return whether the loss reads the value that an op detached with its gradient as well."""
        graph = self._graph
        values = zip(graph.inputs_memory[cut][:1], graph.producers(cut)[:1], strict=True)
        return any(value in self._read_with_gradient for value in values)

    @cached_property
    def _read_with_gradient(self) -> set[tuple[int, int]]:
        """The memory, and the op that last wrote it, of values that the gradient slice reads."""
        graph = self._graph
        found: set[tuple[int, int]] = set()
        for index in graph.slice_ops:
            values = list(zip(graph.inputs_memory[index], graph.producers(index), strict=True))
            connected = set(range(len(values))).difference(self._unconnected(index))
            found.update(values[position] for position in connected)
        return found

    def _made_leaf(self, index: int) -> int | None:
        """Return the op that last returned a new leaf which an op reads."""
        graph = self._graph
        for position, tensor_id in enumerate(graph.inputs[index]):
            if self._new_leaf_edge(index, position) and graph.memory(tensor_id) not in (
                graph.registered_memory
            ):
                found = max(graph.views(index)[position], graph.producers(index)[position])
                return found if found != NO_OP else None
        return None

    def _place(self, index: int) -> SourceLocation | None:
        return self._evidence.analysis.location(self._graph.stacks[index])

    def _mode(self, index: int) -> ModeChanged | None:
        return self._flow.mode_off(self._graph.threads[index], self._graph.op_seqs[index])

    # --- values that pass through Python numbers ------------------------------------------------

    @cached_property
    def _number_reads(self) -> NumberReads:
        return NumberReads(self._evidence)

    def _end_at_numbers(self, index: int, reader: int) -> bool:
        """Record through which numbers an op got its values, if the source says so."""
        graph = self._graph
        source_op = self._read_as_numbers(index)
        if source_op is not None:
            self._add("numbers", index, reader, self._place(index), source_op)
            return True
        op = self._evidence.analysis.op_at(graph.op_seqs[index])
        end = self._number_reads.of(op) if op is not None else None
        if end is not None and end.op is not op:
            read = bisect_left(graph.op_seqs, end.op.seq)
            self._add(end.kind, read, reader, end.culprit)
        return end is not None

    def _read_as_numbers(self, index: int) -> int | None:
        """Return the op whose values an op got through Python numbers, if its statement says so."""
        for place in self._evidence.analysis.user_stack(self._graph.stacks[index])[:1]:
            names, direct = _converted(place)
            if direct or names:
                return self._last_result(index, place, names, direct=direct)
        return None

    def _last_result(
        self, index: int, place: SourceLocation, names: frozenset[str], *, direct: bool
    ) -> int | None:
        """Return the last op with a graph that ran in a statement, or that assigned its names."""
        graph, analysis = self._graph, self._evidence.analysis
        for at in range(index - 1, max(-1, index - _LOOK_BACK), -1):
            if graph.numbers[at] is None or graph.phases[at] != "forward":
                continue
            for frame in analysis.user_stack(graph.stacks[at]):
                if (frame.filename, frame.function) == (place.filename, place.function):
                    if frame.lineno == place.lineno and direct:
                        return at
                    if frame.lineno != place.lineno and names_assigned(frame) & names:
                        return at
                    break
        return None

    def _numbers_in_statements(self) -> None:
        """Follow ``item()`` to statements of the same function that compute with the number."""
        graph, analysis = self._graph, self._evidence.analysis
        reads = [
            index
            for index, name in enumerate(graph.op_names)
            if graph.phases[index] == "forward"
            and (name == "_local_scalar_dense" or (name == "detach" and self._gives_numbers(index)))
        ]
        if not reads:
            return
        users: dict[tuple[str, str], list[tuple[int, SourceLocation]]] = defaultdict(list)
        for index in graph.slice_ops:
            place = analysis.location(graph.stacks[index])
            if place is not None:
                users[place.filename, place.function].append((index, place))
        checked: set[SourceLocation] = set()
        read: dict[SourceLocation, set[str]] = {}
        for index in reads:
            place = analysis.location(graph.stacks[index])
            if place is None or place in checked or not analysis.user_stack(graph.stacks[index]):
                continue
            checked.add(place)
            names = names_assigned(place) if _converted(place)[1] or _converted(place)[0] else set()
            # The number is computed with in the statement that reads it, or by name.
            in_statement = _computes_with_number(place)
            for at, where in users[place.filename, place.function]:
                if at < index:
                    continue
                if where not in read:
                    read[where] = names_read(where)
                same = where.lineno == place.lineno
                if (same and in_statement) or (not same and names & read[where]):
                    self._add("numbers", index, self._with_number(at), place)
                    break

    def _gives_numbers(self, index: int) -> bool:
        """Return whether the statement of a detach makes a number of what it detaches."""
        place = self._place(index)
        return place is not None and any(
            isinstance(node, ast.Call) and source.last_name(node.func) in {"float", "item"}
            for statement in (source.simple_statements(place) if leaves_torch(place) else ())
            for node in ast.walk(statement)
        )

    def _with_number(self, index: int) -> int:
        """Return the first op of a statement, from one of its ops on, that computes with a number.

        That is no number which a person writes.
        """
        graph = self._graph
        for at in range(index, len(graph.stacks)):
            if self._place(at) != self._place(index):
                break
            numbers = graph.analysis.numbers_of(graph.op_seqs[at])
            if at in graph.node_of_op and any(map(_has_many_digits, numbers.values())):
                return at
        return index

    def _numbers_of_tensors(self) -> None:
        """Follow numbers with the digits of a float32 to the only line that reads any in a step."""
        graph, analysis = self._graph, self._evidence.analysis
        reads = [
            index
            for index, name in enumerate(graph.op_names)
            if name == "_local_scalar_dense" and graph.phases[index] == "forward"
        ]
        ends = analysis.steps.ends
        for index in graph.slice_ops if reads else ():
            numbers = analysis.numbers_of(graph.op_seqs[index])
            if not any(_is_of_tensor(each) for each in numbers.values()):
                continue
            step = bisect_left(ends, graph.op_seqs[index])
            begun = ends[step - 1] if step else -1
            before = [each for each in reads[: bisect_left(reads, index)]
                      if graph.op_seqs[each] > begun]  # fmt: skip
            places = {analysis.location(graph.stacks[each]) for each in before}
            if len(places) == 1 and graph.has_graph(before[-1], 0):
                self._integers = False
                self._add("numbers", before[-1], index, places.pop())


def _is_of_tensor(number: float) -> bool:
    """Return whether a number is one of float32 with more digits than a person writes."""
    if (
        not -_LARGEST < number < _LARGEST
        or struct.unpack("f", struct.pack("f", number))[0] != number
    ):
        return False
    return _has_many_digits(number)


def _has_many_digits(number: float) -> bool:
    """Return whether a number has more binary digits than most that a person writes."""
    return isfinite(number) and (frexp(number)[0] * 2**_WRITTEN_BITS) % 1 != 0


def _method(place: SourceLocation) -> str:
    return ".".join(place.function.split(".")[-2:])


def _converted(place: SourceLocation) -> tuple[frozenset[str], bool]:
    """Return the names that a statement reads as numbers, and whether it reads a result as such."""
    names: set[str] = set()
    direct = False
    for statement in source.simple_statements(place):
        for node in ast.walk(statement):
            if not isinstance(node, ast.Call):
                continue
            called = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if called not in NUMBERS and called not in {"tensor", "as_tensor", "from_numpy"}:
                continue
            operands = [*node.args]
            if isinstance(node.func, ast.Attribute) and called in NUMBERS:
                operands.append(node.func.value)
            for operand in operands:
                direct |= any(isinstance(part, ast.Call) for part in ast.walk(operand))
                direct |= any(isinstance(part, ast.BinOp) for part in ast.walk(operand))
                names |= {p.id for p in ast.walk(operand) if isinstance(p, ast.Name)}
    return frozenset(names), direct


def _computes_with_number(place: SourceLocation) -> bool:
    """Return whether a statement uses a number that it reads as an operand."""
    return any(
        isinstance(node, ast.BinOp)
        and any(
            isinstance(side, ast.Call)
            and getattr(side.func, "attr", getattr(side.func, "id", "")) in NUMBERS
            for side in (node.left, node.right)
        )
        for statement in source.simple_statements(place)
        for node in ast.walk(statement)
    )
