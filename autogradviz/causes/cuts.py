"""Cuts: values that depend on parameters, and reach a loss, without their gradient.

A cut is the difference of two slices. The value slice of a loss is what it was computed from; the
gradient slice is what its backward reaches. Where a node of the gradient slice reads a value that
has no gradient path, the slice of that value is followed to the ops that read a tensor with a graph
and made none. No list of functions is needed: an op is a cut because of what it did.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Final

from autogradviz.analysis.causal_graph import NO_OP, ZERO_DERIVATIVE
from autogradviz.analysis.formatting import percent, plural
from autogradviz.causes.weights import weight
from autogradviz.diagnose.evidence.requires_grad_flow import Flow
from autogradviz.diagnose.fact import Fact
from autogradviz.diagnose.source import source_index as source
from autogradviz.diagnose.source.source_index import assigned_names
from autogradviz.diagnose.source.statement_names import names_assigned, names_read
from autogradviz.diagnose.text_formatting import join_names
from autogradviz.events import NO_ID, BackwardStarted, NormRead

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import SourceLocation
    from autogradviz.analysis.causal_graph import CausalGraph
    from autogradviz.diagnose.evidence.facts import Evidence
    from autogradviz.events import ModeChanged

_OPERANDS: Final = 2  # of a difference
_SAMPLES: Final = 2  # calls of one line whose parameters are counted
_LOOK_BACK: Final = 4000  # ops before a number is used, among which its source is searched
_CREATING: Final = frozenset({"lift_fresh", "from_numpy", "detach_"})
_SCALING: Final = "_amp_"  # how the names of the ops of loss scalers begin
_CONVERTING: Final = "Module._apply"  # the function that converts and moves a module's parameters
_INTEGERS: Final = ("int", "uint", "bool")
_READERS: Final = frozenset({"tolist", "item", "numpy", "float", "int", "__array__", "asarray"})

REASONS: Final = {
    "detach": "It returns the same values without their graph.",
    "mode": "Gradients are disabled there, so results have no graph.",
    "integers": "Its results are integers or truth values, which have no gradient.",
    "zero": "Its derivative is zero wherever it exists: backward runs it and passes zeros on.",
    "backward": "They are gradients, and have no graph of their own, because this backward ran "
    "without create_graph=True.",
    "numbers": "The values pass through Python numbers or NumPy, which have no graph.",
    "leaf": "It makes a new leaf: backward stops there and accumulates into the leaf.",
}
_FIXES: Final = {
    "detach": "# leave the detach out, if the gradient is wanted",
    "mode": "# compute what the loss needs outside this block",
    "integers": "# use a differentiable replacement (softmax, sigmoid, a soft threshold)",
    "zero": "y = x + (torch.round(x) - x).detach()  # passes the gradient straight through",
    "backward": "torch.autograd.grad(loss, inputs, create_graph=True)",
    "numbers": "# use the tensor itself: torch.stack([a, b]), not torch.tensor([a, b])",
    "leaf": "# use the tensor itself, not a new Parameter or leaf made from it",
}


@dataclass(slots=True)
class _Line:
    """The cuts of one kind on one line."""

    kind: str
    location: SourceLocation
    others: list[SourceLocation] = field(default_factory=list)
    ops: dict[int, None] = field(default_factory=dict)
    readers: dict[int, None] = field(default_factory=dict)  # ops of the loss that read the values
    effective: bool = False  # without the cut, there would be a gradient
    passed: bool = True  # the gradient passes beside it: x + (y - x).detach()
    single: bool = True  # only single numbers pass


def find_cuts(graph: CausalGraph, evidence: Evidence) -> Iterator[Fact]:
    """Yield a fact for each line and kind of cut."""
    yield from _Cuts(graph, evidence).facts()


class _Cuts:
    def __init__(self, graph: CausalGraph, evidence: Evidence) -> None:
        self._graph = graph
        self._evidence = evidence
        self._lines: dict[tuple[str, SourceLocation], _Line] = {}
        self._explored: set[tuple[int, int, bool, frozenset[int]]] = set()
        self._integers = False  # whether the path that is followed leads through integers

    def facts(self) -> Iterator[Fact]:
        """Yield the facts."""
        graph = self._graph
        for index in graph.slice_ops:
            if graph.op_names[index] in ZERO_DERIVATIVE:
                self._integers = False
                self._add("zero", index, index)
                continue
            for position in self._unconnected(index):
                self._explore(index, position, index)
        self._roots_without_graph()
        self._leaves_of_functions()
        self._numbers_in_statements()
        for line in self._lines.values():
            fact = self._fact(line)
            if fact is not None:
                yield fact

    def _roots_without_graph(self) -> None:
        """Follow the roots of backwards that have no node."""
        graph = self._graph
        for start in graph.analysis.log.of(BackwardStarted):
            for tensor_id, node_id in zip(start.root_tensor_ids, start.root_ids, strict=False):
                if node_id == NO_ID and tensor_id != NO_ID:
                    made = graph.producer_before(tensor_id, start.seq)
                    if made != NO_OP and graph.numbers[made] is None:
                        for each in self._inputs_of(made, made):
                            self._explore(*each, made)

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
                    self._add("leaf", index, index, made=made)

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

    def _is_new_leaf(self, node_id: int) -> bool:
        tensor_id = self._graph.leaves.get(node_id)
        if tensor_id is None:
            return False
        return self._graph.memory(tensor_id) not in self._graph.registered_memory

    def _explore(self, index: int, position: int, reader: int) -> None:
        """Follow a value without a gradient path to the ops at which the path ends."""
        waiting = [(index, position, False)]
        known = self._graph.differentiable
        updated = self._graph.updated_after(reader)
        while waiting:
            at, place, integers = waiting.pop()
            self._integers = integers or self._graph.inputs[at][place] not in known
            key = (at, place, self._integers, updated)
            if key not in self._explored:
                self._explored.add(key)
                waiting += [(*each, self._integers) for each in self._before(at, place, reader)]

    def _before(self, index: int, position: int, reader: int) -> list[tuple[int, int]]:
        """Return the inputs that an input was computed from, [] if its gradient path ends here."""
        graph = self._graph
        if graph.op_names[index] == "detach" and self._has_graph(index, position):
            self._end(index, reader)
            return []
        view = graph.views(index)[position]
        if view > graph.producers(index)[position] and graph.numbers[view] is None:
            # The tensor that was read is a view without a graph, unless a mode explains it.
            in_slice = index in graph.node_of_op
            by_mode = not in_slice and self._mode(index) is not None
            if by_mode and self._has_graph(index, position):
                self._add("mode", index, reader)
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
        if key in graph.registered_memory:
            if not in_slice and key in graph.parameter_memory:
                self._end(index, reader)
        elif producer != NO_OP and graph.numbers[producer] is None:
            return self._inputs_of(producer, reader)
        elif producer != NO_OP and not in_slice:
            self._end(index, reader)
        elif producer != NO_OP and self._new_leaf_edge(index, position):
            self._add("leaf", index, reader)
        return []

    def _inputs_of(self, index: int, reader: int) -> list[tuple[int, int]]:
        """Return the inputs whose values an op without a node passes on.

        Optimizers and loss scalers keep what they compute from gradients for themselves.
        """
        graph = self._graph
        scales = graph.op_names[index].startswith(_SCALING)
        if scales or self._evidence.analysis.in_optimizer(graph.stacks[index]):
            return []
        if graph.op_names[index] in _CREATING and graph.phases[index] == "forward":
            source_op = self._read_as_numbers(index)
            if source_op is not None:
                self._add("numbers", index, reader, source_op)
                return []
        return [(index, position) for position in graph.value_inputs(index)]

    def _new_leaf_edge(self, index: int, position: int) -> bool:
        graph = self._graph
        tensor_id = graph.inputs[index][position]
        return any(
            graph.leaves.get(target) == tensor_id
            for target in graph.next_nodes.get(graph.node_of_op[index], ())
        )

    def _has_graph(self, index: int, position: int) -> bool:
        """Return whether an input of an op was computed with a graph, or is a parameter."""
        graph = self._graph
        producer = graph.producers(index)[position]
        key = graph.inputs_memory[index][position]
        made = producer != NO_OP and graph.numbers[producer] is not None
        return made or key in graph.parameter_memory

    def _end(self, index: int, reader: int) -> None:
        """Record that the gradient path ends at an op which read a tensor with a graph."""
        graph = self._graph
        name = graph.op_names[index]
        dtypes = [self._evidence.analysis.tensors[t].dtype for t in graph.outputs[index]]
        if graph.phases[index] == "backward":
            kind = "backward"
        elif graph.phases[index] != "forward" or graph.region_ids[index] in self._flow.reentrant:
            return
        elif self._mode(index) is not None:
            kind = "mode"
        elif name == "detach":
            kind = "detach"
        elif dtypes and all(dtype.startswith(_INTEGERS) for dtype in dtypes):
            kind = "integers"
        else:
            return  # the recording does not show why: inside a custom Function, for example
        self._add(kind, index, reader)

    def _add(
        self,
        kind: str,
        index: int,
        reader: int,
        source_op: int | None = None,
        made: int | None = None,
    ) -> None:
        graph, analysis = self._graph, self._evidence.analysis
        stack_id = graph.backward_stack(index) if kind == "backward" else graph.stacks[index]
        location = analysis.location(stack_id)
        others = []
        if kind == "mode":
            functions = [frame.function for frame in analysis.stack(stack_id)]
            if graph.phases[index] != "forward" or _CONVERTING in functions:
                return
            event, op = self._mode(index), analysis.op_at(graph.op_seqs[index])
            if event is not None and op is not None:
                others = [location] if location is not None else []
                location = self._flow.mode_line(event, op)
        if kind == "leaf":
            if graph.region_ids[index] in self._flow.reentrant:
                return  # a reentrant checkpoint passes the gradients of its leaves on
            view = self._made_leaf(index) if made is None else made
            location = analysis.location(graph.stacks[view]) if view is not None else location
        if location is None or not analysis.user_stack(stack_id):
            return
        line = self._lines.setdefault((kind, location), _Line(kind, location))
        cut = index if source_op is None else source_op
        line.ops[cut] = None
        line.readers[reader] = None
        line.effective |= not self._integers and not graph.outlived(cut, reader)
        line.passed &= kind == "detach" and self._passes_through(cut, reader)
        line.single &= graph.size(graph.outputs[index]) <= len(graph.outputs[index])
        line.others += [each for each in others if each not in line.others and each != location]

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

    @cached_property
    def _flow(self) -> Flow:
        return Flow(self._evidence)

    def _mode(self, index: int) -> ModeChanged | None:
        return self._flow.mode_off(self._graph.threads[index], self._graph.op_seqs[index])

    # --- values that pass through Python numbers ------------------------------------------------

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
            if name == "_local_scalar_dense" and graph.phases[index] == "forward"
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
                    self._add("numbers", index, at)
                    break

    # --- effects --------------------------------------------------------------------------------

    def _fact(self, line: _Line) -> Fact | None:
        graph = self._graph
        behind: set[int] = set()
        ops = list(line.ops)
        for index in dict.fromkeys([*ops[:_SAMPLES], ops[-1]]):
            behind |= graph.parameters_behind(index)
        if not behind:
            return None  # the values depend on no parameter: data, initialization
        without = behind - graph.got_gradient.keys() - self._requested
        if line.kind == "zero":
            zero = {each for each in behind if self._final_norms.get(each) == 0}
            without |= zero
        share = graph.share(behind)
        lost = graph.share(without)
        names = [graph.parameters[each] for each in sorted(without or behind)]
        seqs = [graph.op_seqs[index] for index in ops[:2]]
        readers = list(line.readers)
        used = self._evidence.analysis.location(graph.stacks[readers[0]])
        result = "zero" if line.kind == "zero" else "no"
        effect = (
            f"{plural(len(without), 'parameter')} ({percent(lost)} of the elements) "
            f"{'gets' if len(without) == 1 else 'get'} {result} gradient: {join_names(names)}"
            if without
            else f"one way of {plural(len(behind), 'parameter')} ({percent(share)} of the "
            "elements) to the loss has no gradient; other ways have one"
        )
        if len(ops) > 1:
            effect += f"; {plural(len(ops), 'time')}"
        return Fact(
            mechanism="cut",
            culprit=line.location,
            effect=effect,
            weight=self._weight(line, behind, share, lost),
            explanation=[
                "The gradient path ends here:",
                line.location,
                REASONS[line.kind],
                "The loss uses these values here:",
                used,
            ],
            confidence="likely" if without and line.kind != "numbers" else "hint",
            parameters=tuple(sorted(without or behind)),
            share=max(lost, share if not without else lost),
            others=tuple(line.others),
            events=tuple(seqs),
            fix=self._fix(line),
            slug="gradient-zero" if line.kind == "zero" and without else "",
        )

    def _fix(self, line: _Line) -> str:
        """Return the change; a detached value that two losses read is detached for one of them."""
        analysis, stacks = self._evidence.analysis, self._graph.stacks
        places = {analysis.user_stack(stacks[each]) for each in line.readers} - {()}
        names = assigned_names(line.location.text)
        if line.kind != "detach" or len(places) < 2 or len(names) != 1:  # noqa: PLR2004
            return _FIXES[line.kind]
        (name,) = names
        return (
            "# leave the detach out here, if one of the losses wants the gradient,\n"
            f"# and write {name}.detach() where the others read it"
        )

    def _weight(self, line: _Line, behind: set[int], share: float, lost: float) -> float:
        """Return the weight: lost gradients count most, what would have no effect least."""
        if line.passed or not line.effective or self._is_of_other_optimizer(line, behind):
            return weight("cut without effect", share)
        if lost:
            return weight(
                "lost gradient of a leaf" if line.kind == "leaf" else "lost gradient", lost
            )
        if line.kind in {"integers", "backward"}:
            return weight("one way cut by integers", share)
        if line.kind == "numbers" and line.single:
            is_meant = "detach(" in line.location.text
            return weight(f"one way cut by a {'detached ' if is_meant else ''}number", share)
        return weight("one way cut", share)

    def _is_of_other_optimizer(self, line: _Line, behind: set[int]) -> bool:
        """Return whether the steps after the losses update nothing that the cut concerns."""
        readers = list(line.readers)
        updated = [self._graph.updated_after(each) for each in (*readers[:_SAMPLES], readers[-1])]
        return all(each and not each & behind for each in updated)

    @cached_property
    def _requested(self) -> set[int]:
        """The tensors whose gradients ``autograd.grad`` returned."""
        inputs = self._graph.analysis.log.column(BackwardStarted, "input_tensor_ids")
        return {each for ids in inputs for each in ids}

    @cached_property
    def _final_norms(self) -> dict[int, float | None]:
        return final_norms(self._graph)


def final_norms(graph: CausalGraph) -> dict[int, float | None]:
    """Return the last norm that was read of each leaf's gradient; None if it is not finite."""
    return {
        tensor_id: norm
        for tensor_id, place, norm in graph.analysis.log.fields(
            NormRead, "tensor_id", "place", "norm"
        )
        if place == "gradient"
    }


def _converted(place: SourceLocation) -> tuple[frozenset[str], bool]:
    """Return the names that a statement reads as numbers, and whether it reads a result as such."""
    names: set[str] = set()
    direct = False
    for statement in source.simple_statements(place):
        for node in ast.walk(statement):
            if not isinstance(node, ast.Call):
                continue
            called = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if called not in _READERS and called not in {"tensor", "as_tensor", "from_numpy"}:
                continue
            operands = [*node.args]
            if isinstance(node.func, ast.Attribute) and called in _READERS:
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
            and getattr(side.func, "attr", getattr(side.func, "id", "")) in _READERS
            for side in (node.left, node.right)
        )
        for statement in source.simple_statements(place)
        for node in ast.walk(statement)
    )
