"""Gradients that are exactly zero although their paths are whole, and the factor that is zero.

A gradient is a sum of products. If a factor of each product is zero and is computed only from
parameters whose gradients are zero as well, none of them ever changes: both matrices of a LoRA are
zero, the units of a ReLU are dead, all advantages are equal, a mask is empty. Norms of gradients
are in every recording; those of factors in one with ``record(norms=True)``, and of parameters
whose gradient is zero at the end.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from autogradviz.analysis.causal_graph import NO_OP
from autogradviz.analysis.formatting import percent, plural
from autogradviz.causes.order_of_facts import weight
from autogradviz.diagnose.blame.search_gradient_cuts import gradient_cuts
from autogradviz.diagnose.evidence.gradient_writes_clears_and_uses import cleared_gradients
from autogradviz.diagnose.fact import Fact
from autogradviz.diagnose.finding_text import describe_tensor, join_names
from autogradviz.diagnose.source.initialization_with_zeros import line_that_gives_zeros
from autogradviz.diagnose.source.operands_changed_as_fixes import with_call_renamed
from autogradviz.events import (
    NO_ID,
    GradAccumulated,
    LeafGradientRead,
    NormRead,
    OutputNormRead,
    ParameterNormRead,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import SourceLocation
    from autogradviz.analysis.causal_graph import CausalGraph
    from autogradviz.diagnose.evidence.evidence import Evidence

_FIX: Final = "# let the factor depend on what is trained, or start it from other values than zero"


_RECTIFIERS: Final = frozenset({"relu", "threshold", "clamp_min", "hardtanh"})
_BIASES: Final = {"addmm": 0, "baddbmm": 0, "convolution": 2, "linear": 2}
"""The position of the bias among the inputs of products."""
_NEXT_OPS: Final = 12  # after a rectifier, in which its result is multiplied


def find_zero_gradients(graph: CausalGraph, evidence: Evidence) -> Iterator[Fact]:
    """Yield a fact for each zero factor, or one if all trained parameters get zero gradients."""
    search = _Zeros(graph, evidence)
    zero = search.leaves
    if not zero:
        return
    groups: dict[SourceLocation, list[tuple[int, int, set[int]]]] = defaultdict(list)
    for index, position in search.zeroing():
        node = graph.backward_nodes[index]
        leaves = graph.reached_leaves(node) & zero if node is not None else set()
        place = search.origin(index, position)
        if leaves and place is not None:
            groups[place].append((index, position, leaves))
    for place, found in groups.items():
        yield _of_factor(graph, place, found)
    for place, factors in search.products().items() if not groups else ():
        yield _of_product(graph, evidence, place, factors)
        groups[place] = []
    dead = search.dead_unit() if not groups else None
    if dead is not None:
        yield _of_unit(graph, *dead)
        return
    if groups or not search.is_everything:
        return
    if not any(cut.kind == "zero" for cut in gradient_cuts(evidence)):
        yield from _of_all(graph, zero)


class _Zeros:
    def __init__(self, graph: CausalGraph, evidence: Evidence) -> None:
        self._graph = graph
        self._evidence = evidence

    @cached_property
    def leaves(self) -> set[int]:
        """The trained parameters of which each gradient that was read is zero."""
        log = self._evidence.analysis.log
        norms: dict[int, set[float | None]] = defaultdict(set)
        for tensor_id, place, norm in log.fields(NormRead, "tensor_id", "place", "norm"):
            if place == "gradient":
                norms[tensor_id].add(norm)
        for tensor_id, norm in log.fields(LeafGradientRead, "tensor_id", "norm"):
            norms[tensor_id].add(norm)
        accumulated = set(log.column(GradAccumulated, "tensor_id"))
        cleared = cleared_gradients(self._evidence)
        return {
            leaf
            for leaf in self._trained
            if norms.get(leaf) == {0.0} and leaf in accumulated and leaf not in cleared
        }

    @cached_property
    def _trained(self) -> set[int]:
        """The parameters that got a gradient, and that an optimizer has if any stepped."""
        graph = self._graph
        found = graph.parameters.keys() & graph.got_gradient.keys()
        return found & graph.held if graph.held else found

    @property
    def is_everything(self) -> bool:
        """Whether all parameters that got a gradient got zeros."""
        return self.leaves == self._trained

    @cached_property
    def _norms(self) -> dict[int, dict[int, float | None]]:
        """The norm of each output of each op, by the op's event and the output's position."""
        found: dict[int, dict[int, float | None]] = defaultdict(dict)
        for seq, position, norm in self._evidence.analysis.log.fields(
            OutputNormRead, "op_seq", "position", "norm"
        ):
            if seq is not None:
                found[seq][position] = norm
        return found

    def zeroing(self) -> Iterator[tuple[int, int]]:
        """Yield the ops in backward that multiply a gradient by a zero, with the zero's position.

        The zero is no gradient, and depends on no parameter that will change.
        """
        graph = self._graph
        if not self._norms:
            return
        for index, node in enumerate(graph.backward_nodes):
            if node is None or node not in graph.gradient_slice or not self._gives_zeros(index):
                continue
            norms = {at: self._norm(index, at) for at in graph.value_inputs(index)}
            zeros = [
                at for at, norm in norms.items() if norm == 0 and not self._is_gradient(index, at)
            ]
            arrives = all(norms[at] for at in norms if self._is_gradient(index, at))
            if zeros and arrives and any(norms.values()) and self._stays(index, zeros[0]):
                yield index, zeros[0]

    def products(self) -> dict[SourceLocation, list[tuple[set[int], set[int]]]]:
        """Return the lines that multiply parameters of zeros by each other, with these parameters.

        Of each node: those that one factor was computed from, and those that are the other.

        The gradient of one factor is multiplied by the other: a node reads a parameter, and a value
        that is computed from others, in the ops of its backward. All of them, and their gradients,
        were zero at the end, so no step changes them.
        """
        graph, log = self._graph, self._evidence.analysis.log
        values = dict(log.fields(ParameterNormRead, "tensor_id", "norm"))
        zero = {leaf for leaf in self.leaves if values.get(leaf) == 0}
        found: dict[SourceLocation, list[tuple[set[int], set[int]]]] = defaultdict(list)
        for node, inside in graph.ops_of_node.items() if len(zero) > 1 else ():
            read = [(i, at, key) for i in inside for at, key in enumerate(graph.inputs_memory[i])]
            direct = zero & {graph.parameter_memory.get(key, NO_ID) for _, _, key in read}
            made = graph.op_of_node.get(node)
            if not direct or made is None or node not in graph.gradient_slice:
                continue
            factors = [
                graph.parameters_behind(index, positions=(position,))
                for index, position, _ in read
                if not self._is_gradient(index, position)
            ]
            other = next((e for e in factors if e and e <= zero and direct - e), None)
            place = graph.analysis.location(graph.stacks[made])
            if other is not None and place is not None:
                found[place].append((other, direct - other))
        return found

    def dead_unit(self) -> tuple[SourceLocation, int, set[int]] | None:
        """Return the last op whose results must be zeros, with its line and these parameters.

        An op as ReLU gives zeros, and passes them on in backward: the parameters before it get
        zeros, and so do those that its result is multiplied with. What is added to that does not.
        """
        graph = self._graph
        for index in reversed(graph.slice_ops):
            if graph.op_names[index].removesuffix("_") not in _RECTIFIERS:
                continue
            before = graph.reached_leaves(graph.node_of_op[index])
            if not before or not before <= self.leaves:
                continue
            weights, biases = self._multiplied(index)
            place = graph.analysis.location(graph.stacks[index])
            is_dead = weights and weights <= self.leaves and biases - self.leaves
            if is_dead and place is not None:
                return place, index, before | weights
        return None

    def _multiplied(self, index: int) -> tuple[set[int], set[int]]:
        """Return the parameters that an op's result is multiplied with, and those added to that."""
        graph = self._graph
        made = {graph.memory(each) for each in graph.outputs[index]}
        weights: set[int] = set()
        biases: set[int] = set()
        for later in range(index + 1, min(index + 1 + _NEXT_OPS, len(graph.inputs))):
            keys = graph.inputs_memory[later]
            at = _BIASES.get(graph.op_names[later])
            if at is not None and len(keys) > at and made & set(keys):
                leaves = [graph.parameter_memory.get(key) for key in keys]
                biases |= {each for each in leaves[at : at + 1] if each is not None}
                weights |= {e for n, e in enumerate(leaves) if n != at and e is not None}
        return weights, biases

    def _gives_zeros(self, index: int) -> bool:
        """Return whether each result of an op is zero, and has elements."""
        graph = self._graph
        norms = self._norms.get(graph.op_seqs[index], {})
        return (
            bool(norms)
            and all(norm == 0 for norm in norms.values())
            and all(graph.analysis.tensors[each].nbytes for each in graph.outputs[index])
        )

    def _made(self, index: int, position: int) -> int:
        """Return the op that produced an input, or returned it as a view of what it produced."""
        graph = self._graph
        return max(graph.views(index)[position], graph.producers(index)[position])

    def _norm(self, index: int, position: int) -> float | None:
        """Return the norm of an input of an op; None if it was not read or is not finite."""
        graph = self._graph
        made = self._made(index, position)
        if made == NO_OP:
            return None
        tensor_id = graph.inputs[index][position]
        norms = self._norms.get(graph.op_seqs[made], {})
        whole = graph.analysis.tensors[tensor_id].nbytes
        for at, each in enumerate(graph.outputs[made]):
            same = graph.memory(each) == graph.memory(tensor_id)
            if same and graph.analysis.tensors[each].nbytes == whole:
                return norms.get(at)
        return None

    def _is_gradient(self, index: int, position: int) -> bool:
        """Return whether an op in backward made an input, and not only a view of a value."""
        graph = self._graph
        creator = graph.creators.get(graph.inputs_memory[index][position], NO_OP)
        return creator != NO_OP and graph.phases[creator] == "backward"

    def _stays(self, index: int, position: int) -> bool:
        """Return whether a factor depends only on parameters whose gradients are zero."""
        graph = self._graph
        key = graph.inputs_memory[index][position]
        if key in graph.parameter_memory:
            return graph.parameter_memory[key] in self.leaves
        return graph.parameters_behind(index, positions=(position,)) <= self.leaves

    def origin(self, index: int, position: int) -> SourceLocation | None:
        """Return the line that made a factor zero, or that uses one from before the recording."""
        graph, analysis = self._graph, self._evidence.analysis
        node = graph.backward_nodes[index]
        place = graph.op_of_node.get(node, NO_OP) if node is not None else NO_OP
        known: set[int] = set()
        at = self._made(index, position)
        while at != NO_OP and at not in known:
            known.add(at)
            stack_id = graph.stacks[at]
            if analysis.in_optimizer(stack_id):
                break  # it wrote the same zeros again
            if graph.phases[at] == "forward" and analysis.user_stack(stack_id):
                place = at
            inputs = [p for p in graph.value_inputs(at) if self._norm(at, p) == 0]
            at = next((self._made(at, p) for p in inputs), NO_OP)
        return analysis.location(graph.stacks[place]) if place != NO_OP else None


def _of_line(graph: CausalGraph, place: SourceLocation, leaves: set[int], **fields: Any) -> Fact:
    """Return the fact of a line that makes the gradients of some parameters zero."""
    share = graph.share(leaves)
    names = join_names([graph.parameters[each] for each in sorted(leaves)])
    return Fact(
        slug="gradient-all-zero",
        mechanism="value",
        culprit=place,
        effect=f"{plural(len(leaves), 'parameter')} ({percent(share)} of the elements) "
        f"{'gets' if len(leaves) == 1 else 'get'} a gradient of exactly zero: {names}",
        weight=weight("zero factor", share),
        parameters=tuple(sorted(leaves)),
        share=share,
        **fields,
    )


def _of_factor(
    graph: CausalGraph,
    place: SourceLocation,
    found: list[tuple[int, int, set[int]]],
) -> Fact:
    leaves = set().union(*(each for _, _, each in found))
    index, position, _ = found[0]
    factor = graph.analysis.tensors[graph.inputs[index][position]]
    node = graph.backward_nodes[index]
    used = graph.op_of_node.get(node, NO_OP) if node is not None else NO_OP
    user = graph.analysis.location(graph.stacks[used]) if used != NO_OP else None
    return _of_line(
        graph,
        place,
        leaves,
        explanation=[
            "This line gives a tensor of zeros, or uses one:",
            place,
            f"The gradient is multiplied with it ({describe_tensor(factor)}), here:"
            if user not in {None, place}
            else "",
            user if user != place else None,
            "The path of the gradient is whole. The factor depends on no parameter that changes, "
            "so it stays zero for these inputs.",
        ],
        victim=user,
        events=tuple(graph.op_seqs[each] for each, _, _ in found[:2]),
        nodes=(node,) if node is not None else (),
        fix=_FIX,
    )


def _line_of_zeros(
    graph: CausalGraph, evidence: Evidence, leaves: set[int]
) -> SourceLocation | None:
    """Return the only line that gives some parameters zeros."""
    lines = {
        line_that_gives_zeros(graph.analysis, evidence.user_files, graph.parameters[leaf])
        for leaf in leaves
    }
    return lines.pop() if len(lines) == 1 else None


def _of_product(
    graph: CausalGraph,
    evidence: Evidence,
    place: SourceLocation,
    products: list[tuple[set[int], set[int]]],
) -> Fact:
    """Return the fact of a product of zeros: one of its factors should have other values.

    It is the one that is multiplied first, as the projection down of an adapter. The inputs of
    later products depend on the earlier ones too, so the one with the fewest parameters says which.
    """
    made, second = (
        _line_of_zeros(graph, evidence, factor)
        for factor in min(products, key=lambda each: len(each[0]))
    )
    leaves = set().union(*(factor for each in products for factor in each))
    return _of_line(
        graph,
        made or place,
        leaves,
        explanation=[
            "This line multiplies parameters whose entries are all zero by each other:",
            place,
            "The gradient of each factor is multiplied by the other one, so both gradients are "
            "zero, and no step changes the factors.",
            "One factor gets its zeros here:" if made is not None else "",
            made,
            "and the other one here:" if second is not None else "",
            second,
        ],
        victim=place if made not in {None, place} else None,
        events=tuple(max(graph.got_gradient[each]) for each in sorted(leaves)[:2]),
        fix="# start one of the factors from other values than zero: torch.nn.init.normal_(...)"
        if made is None
        else (
            with_call_renamed(made, "zeros", "randn")
            or with_call_renamed(made, "zeros_", "normal_")
            or "torch.nn.init.normal_(...)"
        )
        + "  # one of the factors starts from other values than zero",
    )


def _of_unit(graph: CausalGraph, place: SourceLocation, index: int, leaves: set[int]) -> Fact:
    name = graph.op_names[index].removesuffix("_")
    return _of_line(
        graph,
        place,
        leaves,
        explanation=[
            f"The result of {name} is zero in each entry here:",
            place,
            "The gradients of the parameters before it are exactly zero, and so is that of the "
            "parameter that its result is multiplied with; later parameters have others. Its "
            "input is below zero for the whole batch, so no step changes that.",
        ],
        events=(graph.op_seqs[index],),
        fix="# a smaller learning rate, other initial values or a bias of 0; or LeakyReLU",
    )


def _of_all(graph: CausalGraph, leaves: set[int]) -> Iterator[Fact]:
    """Yield the fact that all gradients are zero, at the loss of the last backward."""
    last = max(max(graph.got_gradient[each]) for each in leaves)
    start = graph.backwards.get(last)
    if start is None:
        return
    roots = [graph.op_of_node[each] for each in start.root_ids if each in graph.op_of_node]
    place = graph.analysis.location(graph.stacks[roots[0]] if roots else start.stack_id)
    share = graph.share(leaves)
    yield Fact(
        slug="gradient-all-zero",
        mechanism="value",
        culprit=place,
        effect=f"all {plural(len(leaves), 'parameter')} that got a gradient got exactly zero",
        weight=weight("zero gradients"),
        explanation=[
            "Each gradient of the backward from this loss is zero:",
            place,
            "Its paths to the parameters are whole, so a factor on each of them is zero. "
            "`record(norms=True)` records which.",
        ],
        parameters=tuple(sorted(leaves)),
        share=share,
        events=(start.seq,),
        fix="# record(model, norms=True) names the factor",
    )
