"""Backward was called on a tensor without a graph. Find the operator at which the graph ended."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from autogradviz.analysis.causal_graph import NO_OP
from autogradviz.diagnose.blame.carried_tensor import reaches
from autogradviz.diagnose.blame.unrecorded_detach import (
    find_conversion_to_numbers,
    find_detach,
    find_requires_grad_off,
    is_made_of_literals,
)
from autogradviz.diagnose.evidence.requires_grad_flow import End, Flow, storages
from autogradviz.diagnose.rule import Draft, ErrorMessage, rule
from autogradviz.diagnose.text_formatting import describe_op, join_names
from autogradviz.events import BackwardStarted, FunctionMarked, RequiresGradChanged

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Op, SourceLocation
    from autogradviz.diagnose.evidence.facts import Evidence

_COPIES: Final = ("detach", ".data", "numpy")
_SHOWN: Final = 4  # ends of gradient paths per tensor


@rule(
    "graph-lost",
    mechanism="cut",
    when=ErrorMessage("does not require grad and does not have a grad_fn"),
    group="operation refused",
)
def graph_lost(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for the operator after which the loss had no graph."""
    started = evidence.analysis.log.of(BackwardStarted)
    if not started:
        return
    tensors = evidence.analysis.tensors
    roots = storages(tensors[tensor_id] for tensor_id in started[-1].root_tensor_ids)
    ends = _path_ends(evidence, roots, started[-1])
    if ends:
        yield _ended(evidence, ends)
    else:
        yield from _frozen(evidence)


def _path_ends(evidence: Evidence, roots: set[int], started: BackwardStarted) -> list[End]:
    """Return the ends of the gradient paths to the roots, the last one first."""
    paths = _Paths(evidence)
    for op in evidence.analysis.ops:
        if op.seq > started.seq:
            break
        if op.phase == "backward":
            paths.follow_backward(op)
        elif op.phase == "forward":
            paths.follow_forward(op)
    found = [end for root in sorted(roots) for end in paths.ended.get(root, ())]
    in_place = [
        End("detach", breaking, place, guessed=True)
        for root in sorted(roots)
        if (breaking := paths.unexplained.get(root)) is not None
        and (place := find_detach(evidence, breaking, started)) is not None
    ]
    ends = [end for end in found if end.kind != "constant"]
    if not ends:
        ends = [paths.with_writes(end, started) for end in found or paths.created(roots)]
    return in_place[:1] or sorted(ends, key=lambda end: -end.op.seq)


class _Paths:
    """The storages that have a graph, and the ends of the gradient paths to the others."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self._flow = Flow(evidence)
        self._regions = {r.region_id: r for r in evidence.analysis.regions if r.reentrant}
        self._graded = set(self._flow.leaves)
        self._numbers: dict[SourceLocation | None, End] = {}  # .item() and detach, by line
        self._marked = _non_differentiable(evidence)
        self.ended: dict[int, tuple[End, ...]] = {}
        self.unexplained: dict[int, Op] = {}  # an op without a node, for no known reason

    def follow_backward(self, op: Op) -> None:
        """Follow an operator of a backward, which makes nodes if ``create_graph`` is set."""
        if op.sequence_nr is not None:
            self._graded |= self._flow.differentiable_outputs(op)
            return
        began = [e for e in self._evidence.analysis.log.of(BackwardStarted) if e.seq < op.seq]
        if began and not began[-1].create_graph:
            line = self._evidence.analysis.location(began[-1].stack_id)
            for storage_id in storages(op.outputs) - self._graded:
                self.ended[storage_id] = (End("backward", op, line),)

    def follow_forward(self, op: Op) -> None:
        """Follow an operator of the forward."""
        taken, given = storages(op.inputs), storages(op.outputs)
        if op.sequence_nr is not None:
            if self._flow.writes_via_data(op, self._graded):
                self._end(given, [End("detach", op, op.location)])
                return
            differentiable = self._flow.differentiable_outputs(op)
            self._graded |= differentiable
            self._end(given - differentiable, [End("integers", op, op.location)])
            return
        ends = self._ends(op, taken, given)
        vague = next((self.unexplained[s] for s in sorted(taken) if s in self.unexplained), None)
        if vague is None and not self._flow.always_breaks(op):
            vague = op if self._flow.not_detached(taken & self._graded) else None
        if vague is not None:
            self.unexplained.update(dict.fromkeys(given, vague))
        self._end(given, ends)

    def _end(self, given: set[int], ends: list[End]) -> None:
        for storage_id in given:
            if ends and storage_id in self._marked:
                ends = [End("marked", ends[0].op, self._marked[storage_id])]
            unique = {(end.kind, end.culprit): end for end in ends}
            self.ended[storage_id] = tuple(unique.values())[:_SHOWN]

    def _ends(self, op: Op, taken: set[int], given: set[int]) -> list[End]:
        """Return the ends of the gradient paths to the inputs of an operator without a node."""
        flow, graded = self._flow, self._graded
        end = flow.end_at(op, taken & graded) if taken & graded else None
        if op.region_id in self._regions and taken & graded:
            end = End("reentrant", op, self._regions[op.region_id].location)
        if end is not None and (end.kind == "number" or _copies(end)):
            self._numbers.pop(end.culprit, None)
            self._numbers[end.culprit] = end
        found = [end] if end is not None else []
        found += [earlier for s in sorted(taken) for earlier in self.ended.get(s, ())]
        if not found and op.name == "lift_fresh" and graded - flow.leaves:
            found = [self._made_of_numbers(op)]
        if not found and given and flow.disabling_mode(op) is not None and not self._initial(op):
            found = [e for e in [flow.end_at(op, set())] if e is not None]
        return found

    def _made_of_numbers(self, op: Op) -> End:
        """Return the operation that turned a tensor into the numbers of a new tensor."""
        line = find_conversion_to_numbers(op.location) if op.location is not None else None
        if line is not None:
            return self._numbers.get(line) or End("fresh", op, line)
        if (end := self._of_numbers(op)) is not None:
            return end
        constant = op.location is not None and is_made_of_literals(op.location)
        return End("constant" if constant else "fresh", op, op.location)

    def _of_numbers(self, op: Op) -> End | None:
        """Return the last operation that read the numbers of a tensor which get to an op."""
        stack = self._evidence.analysis.user_stack
        used = stack(op.stack_id)[::-1]
        for end in reversed(self._numbers.values()):
            made = stack(end.op.stack_id)[::-1]
            if end.op.seq < op.seq and reaches(self._evidence, made, used):
                return end if end.kind == "number" else replace(end, guessed=True)
        return None

    def with_writes(self, end: End, started: BackwardStarted) -> End:
        """Return the end of a path to a new tensor, or to the numbers written into it since."""
        if end.kind != "constant":
            return end
        writes = [
            write
            for storage_id in storages(end.op.outputs)
            for write in self._evidence.writes_between(storage_id, end.op.seq, started.seq)
            if write.stack_id != end.op.stack_id  # torch.tensor writes what it makes
        ]
        ends = (self._of_numbers(write) for write in reversed(writes))
        found = next((each for each in ends if each is not None), None)
        if found is None and (writes or not self._is_only_source(end.op, started)):
            found = replace(end, kind="fresh")
        return found or end

    def _is_only_source(self, op: Op, started: BackwardStarted) -> bool:
        """Return whether the roots of a backward are computed from the result of an op alone."""
        graph = self._evidence.causal_graph
        waiting = [graph.producer_before(each, started.seq) for each in started.root_tensor_ids]
        seen = set(waiting)
        created = {graph.memory(tensor.tensor_id) for tensor in op.outputs}
        while waiting:
            index = waiting.pop()
            if index == NO_OP:
                return False
            if graph.stacks[index] == op.stack_id:
                continue
            producers, keys = graph.producers(index), graph.inputs_memory[index]
            positions = [each for each in graph.value_inputs(index) if keys[each] not in created]
            found = {producers[position] for position in positions}
            if not positions and any(key in created for key in keys):
                continue
            if not found:  # another tensor is created here
                return False
            waiting += found - seen
            seen |= found
        return True

    def created(self, roots: set[int]) -> list[End]:
        """Return the ops that created roots out of nothing, if there are results with a graph."""
        if not self._graded - self._flow.leaves:
            return []
        creators = self._evidence.analysis.creators
        ops = (creators[root] for root in sorted(roots & creators.keys()))
        return [End("constant", op, op.location) for op in ops if op.outputs and not op.inputs]

    def _initial(self, op: Op) -> bool:
        """Return whether an operator initialized a parameter."""
        return any(
            "/torch/nn/init" in place.filename.replace("\\", "/")
            for place in self._evidence.analysis.stack(op.stack_id)
        )


def _non_differentiable(evidence: Evidence) -> dict[int, SourceLocation | None]:
    """Return the lines that called ``mark_non_differentiable``, by storage of the result."""
    analysis = evidence.analysis
    return {
        storage_id: analysis.location(event.stack_id)
        for event in analysis.log.of(FunctionMarked)
        if event.mark == "mark_non_differentiable"
        for storage_id in storages(analysis.tensors[tensor_id] for tensor_id in event.tensor_ids)
    }


def _copies(end: End) -> bool:
    """Return whether a line reads the numbers of a tensor by a detach of its own."""
    text = end.culprit.text if end.culprit is not None else ""
    return end.kind == "detach" and any(word in text for word in _COPIES)


def _ended(evidence: Evidence, ends: list[End]) -> Draft:
    end, *others = ends
    victim = evidence.raised_at()
    return Draft(
        title="The loss has no graph: it is computed from no tensor"
        if end.kind == "constant"
        else f"The loss has no graph: it ended at {end.name}",
        culprit=end.culprit,
        victim=victim,
        explanation=[
            "Backward was called on a tensor that autograd does not track:",
            victim,
            "It was created here:" if end.kind == "constant" else "Its gradient path ends here:",
            end.culprit,
            _operator(end),
            end.reason,
            *(["It ends here as well:", *(other.culprit for other in others)] if others else []),
        ],
        fix=end.fix,
        # A single end is the cause; of several, the log does not show which one was intended.
        confidence="likely" if others or end.guessed or end.kind == "fresh" else "certain",
        evidence=(end.op, evidence.analysis.error),
    )


def _operator(end: End) -> str:
    if end.op.location == end.culprit:
        return f"The operator: {describe_op(end.op)}"
    return f"Inside it, this operator made no node: {describe_op(end.op)}"


def _frozen(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft if requires_grad of the leaves was set to False."""
    frozen = [e for e in evidence.analysis.log.of(RequiresGradChanged) if not e.requires_grad]
    seen = evidence.analysis.location(frozen[-1].stack_id) if frozen else None
    culprit = seen or find_requires_grad_off(evidence)
    if culprit is None and not frozen:
        return
    named = (evidence.analysis.parameters.get(event.tensor_id, ("",))[0] for event in frozen)
    names = [name for name in named if name]
    yield Draft(
        title=f"The loss has no graph: requires_grad of {len(frozen) or 'its'} leaves was set to "
        "False",
        culprit=culprit,
        victim=evidence.raised_at(),
        explanation=[
            "Backward was called on a tensor that autograd does not track:",
            evidence.raised_at(),
            f"requires_grad was set to False for {join_names(names) or 'leaves'}:",
            culprit or "    (on a line that was not recorded)",
            "No other input of the loss requires a gradient.",
        ],
        fix="# freeze some parameters only, or none: parameter.requires_grad_(True)",
        confidence="likely",
        evidence=(*frozen[-1:], evidence.analysis.error),
    )
