"""Ends of the paths of gradients, also inside ``torch.func``."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Final

from autogradviz.analysis.analysis import UNNAMED
from autogradviz.analysis.formatting import percent, plural
from autogradviz.causes.order_of_facts import weight
from autogradviz.causes.ranges_implied_by_ops import ranges_of
from autogradviz.causes.silent_mistakes_in_losses_and_noise import is_chosen_log
from autogradviz.diagnose.blame.search_gradient_cuts import (
    ADDING,
    COMPARING,
    fix_of_cut,
    gradient_cuts,
)
from autogradviz.diagnose.evidence.gradient_writes_clears_and_uses import unused_results_of_grad
from autogradviz.diagnose.evidence.requires_grad_flow import End, Flow, fix_of, reason_of
from autogradviz.diagnose.fact import Fact
from autogradviz.diagnose.finding_text import join_names
from autogradviz.diagnose.source import source_index as source
from autogradviz.diagnose.source.source_index import leaves_torch
from autogradviz.events import NO_ID
from autogradviz.support.source_lines_and_libraries import is_installed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Op, SourceLocation
    from autogradviz.analysis.causal_graph import CausalGraph
    from autogradviz.diagnose.blame.search_gradient_cuts import Cut
    from autogradviz.diagnose.evidence.evidence import Evidence


# --- cuts -----------------------------------------------------------------------------------------
#
# The effects of cuts: the parameters that lose a gradient, or one of its ways, at each line.


_SAMPLES: Final = 2  # readers of one line that are looked at
_CALLS: Final = 200  # calls of one line whose parameters are counted


def find_cuts(graph: CausalGraph, evidence: Evidence) -> Iterator[Fact]:
    """Yield a fact for each line and kind of cut behind which there are parameters."""
    effects = _Effects(graph, evidence)
    found = map(effects.fact, gradient_cuts(evidence))
    yield from (fact for fact in found if fact is not None)


class _Effects:
    def __init__(self, graph: CausalGraph, evidence: Evidence) -> None:
        self._graph = graph
        self._evidence = evidence

    def fact(self, line: Cut) -> Fact | None:
        """Return the fact of a line, None if its values depend on no parameter."""
        graph = self._graph
        ops = list(line.ops)
        behind = graph.parameters_behind(*ops[:_CALLS], ops[-1])
        if not behind:
            return None  # the values depend on no parameter: data, initialization
        reached = graph.got_gradient.keys() | graph.not_reached_yet
        without = behind - reached - self._requested
        if line.kind == "zero":
            zero = {each for each in behind if graph.final_norms.get(each) == 0}
            without |= zero
        if not without and all(map(self._scales_log_probability, line.readers)):
            return None  # the factor of a policy gradient is a number
        share = graph.share(behind)
        lost = graph.share(without)
        names = [graph.parameters[each] for each in sorted(without or behind)]
        seqs = [graph.op_seqs[index] for index in ops[:2]]
        readers = list(line.readers)
        used = self._evidence.analysis.location(graph.stacks[readers[0]])
        result = "zero" if line.kind == "zero" else "no"
        # What autograd.grad returned is no gradient of a parameter for an optimizer.
        others = (
            "gradients come from other paths only"
            if behind & reached
            else "only torch.autograd.grad returns gradients of them"
        )
        effect = (
            f"{plural(len(without), 'parameter')} ({percent(lost)} of the elements) "
            f"{'gets' if len(without) == 1 else 'get'} {result} gradient"
            + (f": {join_names(named)}" if (named := [n for n in names if n != UNNAMED]) else "")
            if without
            else f"one path from {plural(len(behind), 'parameter')} ({percent(share)} of the "
            f"elements) to the loss is cut; {others}"
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
                reason_of(line.kind, line.location),
                "The loss uses these values here:",
                used,
            ],
            confidence=(
                "likely" if without and line.effective and line.kind != "numbers" else "hint"
            ),
            parameters=tuple(sorted(without or behind)),
            share=max(lost, share if not without else lost),
            others=tuple(line.others),
            events=tuple(seqs),
            # What is detached without an effect is meant as it is.
            fix=fix_of_cut(self._evidence, line) if line.effective or line.kind != "detach" else "",
            slug="gradient-zero" if line.kind == "zero" and without else "",
        )

    def _scales_log_probability(self, index: int) -> bool:
        """Return whether an op multiplies a log-probability that an index chose."""
        graph = self._graph
        return graph.op_names[index] == "mul" and any(
            is_chosen_log(graph, made) for made in graph.producers(index)
        )

    def _weight(self, line: Cut, behind: set[int], share: float, lost: float) -> float:
        """Return the weight: lost gradients count most, what would have no effect least."""
        if line.passed or not line.effective or self._is_of_other_optimizer(line, behind):
            return weight("cut without effect", share)
        if lost:
            return weight(
                "lost gradient of a leaf" if line.kind == "leaf" else "lost gradient", lost
            )
        if line.requested:
            return weight("cut without effect", share)
        name = _one_way(line)
        if self._is_lost_term(line):
            return weight("one way cut of a term of the loss", share)
        if name == "one way cut by a number" and all(map(self._scales, line.readers)):
            name = "one way cut by a coefficient"
        if line.kind in {"detach", "numbers"} and line.location in self._copies:
            name = "one way cut by a copy"
        shifts = ranges_of(self._evidence).subtracts_maximum
        if name == "one way cut" and all(map(shifts, line.readers)):
            name = "one way cut of a maximum that is subtracted"
        if name == "one way cut" and all(self._is_compared(each, behind) for each in line.readers):
            name = "one way cut of a target"
        if name == "one way cut" and any(map(self._is_carried, list(line.ops)[:_SAMPLES])):
            name = "one way cut of a value that later steps read"
        return weight(name, share)

    def _is_lost_term(self, line: Cut) -> bool:
        """Return whether what leaves torch at a line comes back as a term that is added to a loss.

        Such a term changes the value of the loss, and no gradient.
        """
        if line.kind not in {"numbers", "detach"} or not leaves_torch(line.location):
            return False
        graph = self._graph
        return all(
            graph.op_names[each] in ADDING and graph.size(graph.outputs[each]) == 1
            for each in line.readers
        )

    def _scales(self, index: int) -> bool:
        """Return whether an op multiplies by a number; a divisor is often a sum with a graph."""
        graph = self._graph
        numbers = graph.analysis.numbers_of(graph.op_seqs[index])
        return graph.op_names[index] == "mul" and "other" in numbers

    def _is_compared(self, index: int, behind: set[int]) -> bool:
        """Return whether an op compares the cut values with what the same parameters computed.

        One of both is a target then, as the next value of a state in temporal differences. With
        a gradient it would follow the prediction.
        """
        graph = self._graph
        edges = graph.next_nodes.get(graph.node_of_op.get(index, NO_ID), ())
        return graph.op_names[index] in COMPARING and any(
            graph.reached_leaves(each) & behind for each in edges if each != NO_ID
        )

    def _is_carried(self, cut: int) -> bool:
        """Return whether an op reads a value of a cut, without a graph, after its graph was used.

        Without the cut, the backward of a later step would need a graph that is freed.
        """
        graph, made = self._graph, {cut}
        for index in range(cut + 1, len(graph.op_names)):
            if graph.phases[index] != "forward" or made.isdisjoint(
                (*graph.producers(index), *graph.views(index))
            ):
                continue
            if graph.outlived(cut, index):
                return True
            if graph.numbers[index] is None:
                made.add(index)
        return False

    def _is_of_other_optimizer(self, line: Cut, behind: set[int]) -> bool:
        """Return whether the steps after the losses update nothing that the cut concerns."""
        readers = list(line.readers)
        updated = [self._graph.updated_after(each) for each in (*readers[:_SAMPLES], readers[-1])]
        return all(each and not each & behind for each in updated)

    @cached_property
    def _copies(self) -> set[SourceLocation | None]:
        """The lines that call ``torch.tensor`` with a tensor."""
        return set(map(self._evidence.analysis.location, self._graph.copied_by_constructor))

    @cached_property
    def _requested(self) -> set[int]:
        """The tensors whose gradients ``autograd.grad`` returned, for an update."""
        return self._graph.requested.keys() - unused_results_of_grad(self._evidence)


def _one_way(line: Cut) -> str:
    """Return the name of the weight of a cut of one way, while others have a gradient."""
    if is_installed(line.location.filename):
        return "one way cut in an installed package"
    if line.has_other_way:
        return "one way cut of a value that keeps another"
    is_mask = line.kind == "numbers" and source.compares(line.location)
    if line.kind in {"integers", "backward"} or is_mask:
        return "one way cut by integers"
    if line.kind == "numbers" and line.single:
        is_meant = "detach(" in line.location.text and not leaves_torch(line.location)
        return f"one way cut by a {'detached ' if is_meant else ''}number"
    return "one way cut"


# --- transform cuts -------------------------------------------------------------------------------
#
# Gradients of ``torch.func`` that are zeros because no gradient path leads to their tensor.
#
# PyTorch returns zeros where a gradient is undefined, without an error; the op that makes them is
# recorded, and called by PyTorch's function for gradients of transforms. The values of the tensor
# are followed from there to where they lose their graph.


_FILE: Final = "/torch/_functorch/eager_transforms.py"
_GRADIENT: Final = "_autograd_grad"  # the function that returns zeros
_FORWARD: Final = ("grad_and_value_impl", "_vjp_with_argnums")
"""The functions that call the transformed one."""
_KINDS: Final = frozenset({"detach", "mode", "integers", "number"})
_SHOWN: Final = 3  # shapes, and ends of gradient paths


@dataclass(slots=True)
class _Line:
    """The zeros that one line explains."""

    end: End
    call: SourceLocation | None  # of the transform
    others: dict[SourceLocation, None] = field(default_factory=dict)
    ops: dict[int, None] = field(default_factory=dict)  # that made the zeros
    tensors: dict[int, None] = field(default_factory=dict)


def find_transform_cuts(graph: CausalGraph, evidence: Evidence) -> Iterator[Fact]:
    """Yield a fact for each line that cuts values inside of a transform of ``torch.func``."""
    cuts = _TransformCuts(graph, evidence)
    yield from cuts.zeros()
    yield from cuts.detached()


class _TransformCuts:
    def __init__(self, graph: CausalGraph, evidence: Evidence) -> None:
        self._graph = graph
        self._evidence = evidence
        self._flow = Flow(evidence)
        self._roles: dict[int | None, str] = {}  # by stack

    def zeros(self) -> Iterator[Fact]:
        """Yield a fact for each line behind which gradients are zeros."""
        graph = self._graph
        lines: dict[SourceLocation | None, _Line] = {}
        for index, name in enumerate(graph.op_names):
            if name != "zeros_like" or self._role(index) != _GRADIENT or not graph.inputs[index]:
                continue
            ends = self._ends(index)
            if not ends:
                continue  # the function does not use the tensor
            first, *rest = ends.values()
            line = lines.setdefault(first.culprit, _Line(first, self._place(index)))
            line.others.update(dict.fromkeys(place for end in rest if (place := end.culprit)))
            line.ops[index] = None
            line.tensors[graph.inputs[index][0]] = None
        for line in lines.values():
            yield self._fact(line)

    def detached(self) -> Iterator[Fact]:
        """Yield a fact for each line of the user that detaches values inside of a transform."""
        graph = self._graph
        found: dict[SourceLocation, list[int]] = {}
        for index, name in enumerate(graph.op_names):
            if name == "detach" and graph.phases[index] == "forward" and graph.is_users(index):
                place = self._place(index)
                if place is not None and self._role(index) in _FORWARD:
                    found.setdefault(place, []).append(index)
        for place, ops in found.items():
            times = f"; {plural(len(ops), 'time')}" if len(ops) > 1 else ""
            yield Fact(
                mechanism="cut",
                culprit=place,
                effect=f"values inside of a transform of torch.func go on without their gradient"
                f"{times}",
                weight=weight("detached in a transform"),
                explanation=[
                    "The gradient path of the transform ends here:",
                    place,
                    "If other ways lead from its inputs to its outputs, those have a gradient.",
                ],
                events=tuple(graph.op_seqs[index] for index in ops[:2]),
                fix=fix_of("detach", place),
            )

    def _place(self, index: int) -> SourceLocation | None:
        return self._graph.analysis.location(self._graph.stacks[index])

    def _role(self, index: int) -> str:
        """Return the innermost function of transforms that called an op, "" for none."""
        stack_id = self._graph.stacks[index]
        if stack_id not in self._roles:
            roles = (
                place.function
                for place in self._graph.analysis.stack(stack_id)
                if place.function in {_GRADIENT, *_FORWARD}
                and place.filename.replace("\\", "/").endswith(_FILE)
            )
            self._roles[stack_id] = next(roles, "")
        return self._roles[stack_id]

    def _ends(self, zeros: int) -> dict[SourceLocation, End]:
        """Return the lines at which the values of a tensor lose their graph, in order.

        Searches the forward of the transform: the ops before those of its gradient.
        """
        graph, forward = self._graph, []
        for index in range(zeros - 1, -1, -1):
            if graph.threads[index] != graph.threads[zeros]:
                continue
            role = self._role(index)
            if role in _FORWARD:
                forward.append(index)
            elif forward and role != _GRADIENT:
                break
        reached = {graph.memory(graph.inputs[zeros][0])}
        ends: dict[SourceLocation, End] = {}
        users: dict[tuple[str, str], Op] = {}  # the last op of each function that uses the values
        for index in reversed(forward):
            keys = graph.inputs_memory[index]
            if not any(keys[position] in reached for position in graph.value_inputs(index)):
                continue
            reached.update(map(graph.memory, (*graph.outputs[index], *graph.written[index])))
            op = graph.analysis.op_at(graph.op_seqs[index])
            if op is None or op.location is None:
                continue
            users[op.location.filename, op.location.function] = op
            end = self._flow.end_at(op, set())
            if end is not None and end.kind in _KINDS and end.culprit is not None:
                ends.setdefault(end.culprit, end)
        return ends or dict(_reads_of_data(users))

    def _fact(self, line: _Line) -> Fact:
        graph, end = self._graph, line.end
        tensors = [graph.analysis.tensors[each] for each in line.tensors]
        shapes = [f"{each.dtype} {'×'.join(map(str, each.shape)) or 'scalar'}" for each in tensors]
        shown = ", ".join(shapes[:_SHOWN]) + (", …" if len(shapes) > _SHOWN else "")
        times = f"; {plural(len(line.ops), 'time')}" if len(line.ops) > len(tensors) else ""
        return Fact(
            mechanism="cut",
            culprit=end.culprit,
            effect=f"torch.func returns zeros as the gradient of {plural(len(tensors), 'tensor')} "
            f"({shown}): its values are used, without a gradient path{times}",
            weight=weight("zeros of a transform"),
            explanation=(
                f"The gradient path ends here, at {end.name}:",
                end.culprit,
                end.reason,
                "The transform computes the gradient here, and returns zeros without an error:",
                line.call,
                "It ends here as well:",  # left out if no line follows
                *line.others,
            ),
            confidence="likely",
            others=tuple(line.others)[:_SHOWN],
            events=(end.op.seq, graph.op_seqs[next(iter(line.ops))]),
            fix=end.fix,
        )


def _reads_of_data(users: dict[tuple[str, str], Op]) -> Iterator[tuple[SourceLocation, End]]:
    """Yield the lines of some functions that read ``.data``, which is no op of its own."""
    for (filename, function), op in users.items():
        lines = {
            node.lineno
            for name, node in source.nodes(filename)
            if name == function and isinstance(node, ast.Attribute) and node.attr == "data"
        }
        for lineno in sorted(lines):
            place = source.location(filename, lineno, function)
            yield place, End("detach", op, place, guessed=True)
