"""Operators whose operands have shapes for which the result is another one than was meant."""

from __future__ import annotations

import json
from collections import defaultdict
from math import prod
from typing import TYPE_CHECKING, Final, NamedTuple

from autogradviz.analysis.causal_graph import NO_OP
from autogradviz.analysis.formatting import format_shape, percent, plural
from autogradviz.causes.weights import weight
from autogradviz.diagnose.fact import Fact
from autogradviz.events import ArgumentsSeen, OpCalled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from autogradviz.analysis import SourceLocation
    from autogradviz.analysis.causal_graph import CausalGraph
    from autogradviz.diagnose.finding import Mechanism

_COMPARING: Final = frozenset(
    {
        "sub", "rsub", "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "kl_div",
        "binary_cross_entropy", "binary_cross_entropy_with_logits",
    }
)  # fmt: skip
"""Operators that compare the elements of two tensors."""
_POINTWISE: Final = frozenset({"pow", "abs", "mul", "square", "neg", "div", "where", "clamp_min"})
_REDUCING: Final = frozenset({"mean", "sum"})
_DEPTH: Final = 4  # operators between a comparison and its reduction
_NEAR: Final = 12  # operators from a softmax to the product of attention
_OPERANDS: Final = 2

_PRODUCTS: Final = frozenset({"bmm", "mm", "matmul", "einsum", "baddbmm", "dot", "mv"})
_NORMALIZING: Final = frozenset({"_softmax", "_log_softmax", "_safe_softmax"})


class _Words(NamedTuple):
    """The parts of a fact that depend on its kind."""

    slug: str
    mechanism: Mechanism
    effect: str
    situation: str  # of the table of weights
    before: str  # the line
    after: str
    fix: str


def find_wrong_shapes(graph: CausalGraph) -> Iterator[Fact]:
    """Yield facts about losses over all pairs, and about results that cannot vary."""
    dims = _dims(graph)
    pairs: dict[SourceLocation, list[int]] = defaultdict(list)
    constant: dict[SourceLocation, list[int]] = defaultdict(list)
    varying: set[SourceLocation] = set()  # lines that normalize more elements in another call
    for index in graph.slice_ops:
        is_normalizing = graph.op_names[index] in _NORMALIZING
        if not is_normalizing and graph.op_names[index] not in _COMPARING:
            continue
        place = next(iter(graph.analysis.user_stack(graph.stacks[index])), None)
        if place is None:
            continue
        if is_normalizing and _is_constant(dims, graph, index):
            constant[place].append(index)
        elif is_normalizing:
            varying.add(place)
        elif _compares_all_pairs(graph, index):
            pairs[place].append(index)
    for place, ops in pairs.items():
        yield _fact(graph, place, ops, _pairs)
    for place, ops in constant.items():
        if place not in varying:
            yield _fact(graph, place, ops, _one)


# --- losses over all pairs ----------------------------------------------------------------------


def _operands(graph: CausalGraph, index: int) -> list[tuple[int, ...]]:
    """Return the shapes of an op's inputs before they were expanded."""
    shapes = []
    for tensor_id, view in zip(graph.inputs[index], graph.views(index), strict=True):
        expanded = view != NO_OP and graph.op_names[view] == "expand"
        source = graph.inputs[view][0] if expanded else tensor_id
        shapes.append(graph.analysis.tensors[source].shape)
    return shapes


def _compares_all_pairs(graph: CausalGraph, index: int) -> bool:
    """Return whether an op compares each of n elements with all n of another shape.

    A dimension that the same line adds, as ``x[:, None]``, says that it is meant.
    """
    if graph.op_names[index] not in _COMPARING or len(graph.inputs[index]) < _OPERANDS:
        return False
    first, second = _operands(graph, index)[:_OPERANDS]
    number = prod(first)
    if number < _OPERANDS or number != prod(second) or len(first) == len(second):
        return False
    result = graph.analysis.tensors[graph.outputs[index][0]].shape
    pairs = tuple(max(pair) for pair in zip(_padded(first, second), _padded(second, first),
                                            strict=True))  # fmt: skip
    if prod(pairs) <= number or result not in {pairs, ()}:
        return False
    added = [
        view
        for view in graph.views(index)
        if view != NO_OP and graph.op_names[view] == "unsqueeze"
        and graph.stacks[view] == graph.stacks[index]
    ]  # fmt: skip
    return not added and (result == () or _is_reduced(graph, index, prod(pairs)))


def _padded(shape: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    return (1,) * max(0, len(other) - len(shape)) + shape


def _is_reduced(graph: CausalGraph, index: int, number: int) -> bool:
    """Return whether only pointwise ops are between an op and a sum or mean of all elements."""
    made = {graph.memory(each) for each in graph.outputs[index]}
    for later in range(index + 1, min(index + 1 + _DEPTH, len(graph.inputs))):
        if made.isdisjoint(graph.inputs_memory[later]):
            continue
        name = graph.op_names[later]
        if name in _REDUCING:
            result = graph.analysis.tensors[graph.outputs[later][0]]
            return prod(result.shape) == 1 and number > 1
        if name not in _POINTWISE:
            return False
        made |= {graph.memory(each) for each in graph.outputs[later]}
    return False


def _pairs(graph: CausalGraph, ops: list[int]) -> _Words:
    first, second = (format_shape(each) for each in _operands(graph, ops[0])[:_OPERANDS])
    return _Words(
        slug="loss-broadcast",
        mechanism="change",
        effect=f"{graph.op_names[ops[0]]} of shapes {first} and {second} compares each element "
        f"with every element of the other, {plural(len(ops), 'time')}",
        situation="loss of all pairs",
        before="This line compares tensors of the same number of elements and different shapes:",
        after="Both are broadcast to all pairs, and the loss is the mean or sum of them: the "
        "gradient pulls each prediction to the targets of all samples.",
        fix="# give both the same shape: prediction.squeeze(-1), or target.view_as(prediction)",
    )


# --- results that cannot vary -------------------------------------------------------------------


def _dims(graph: CausalGraph) -> list[int | None]:
    """Return the argument ``dim`` of each op, None if it was not recorded or is no number."""
    log = graph.analysis.log
    dims = {}
    for number, text in log.fields(ArgumentsSeen, "arguments_id", "arguments"):
        if '"dim"' in text:
            dim = json.loads(text).get("dim")
            dims[number] = dim if isinstance(dim, int) else None
    return [
        None if each is None else dims.get(each) for each in log.column(OpCalled, "arguments_id")
    ]


def _is_constant(dims: list[int | None], graph: CausalGraph, index: int) -> bool:
    """Return whether an op normalizes over a dimension of one element: 1, or log 1."""
    dim = dims[index]
    if dim is None or graph.op_names[index] not in _NORMALIZING:
        return False
    made = graph.outputs[index][0]
    shape = graph.analysis.tensors[made].shape
    if not (-len(shape) <= dim < len(shape) and shape[dim] == 1 and prod(shape) > 0):
        return False
    # Attention to one key is what a sequence of one token has.
    key = graph.memory(made)
    later = range(index + 1, min(index + 1 + _NEAR, len(graph.inputs)))
    return not any(
        key in graph.inputs_memory[each] and graph.op_names[each] in _PRODUCTS for each in later
    )


def _one(graph: CausalGraph, ops: list[int]) -> _Words:
    shape = graph.analysis.tensors[graph.outputs[ops[0]][0]].shape
    value = "0" if "log" in graph.op_names[ops[0]] else "1"
    return _Words(
        slug="result-constant",
        mechanism="cut",
        effect=f"a softmax over one element is always {value}, {plural(len(ops), 'time')}",
        situation="constant result",
        before=f"This line normalizes {format_shape(shape)} over a dimension of one element:",
        after=f"Whatever the element is, the result is {value}, and the gradient that passes "
        "through it is zero.",
        fix="# normalize over the dimension of the classes, or use a sigmoid for one of two",
    )


def _fact(
    graph: CausalGraph,
    place: SourceLocation,
    ops: list[int],
    make: Callable[[CausalGraph, list[int]], _Words],
) -> Fact:
    behind = graph.parameters_behind(ops[0])
    share = graph.share(behind)
    words = make(graph, ops)
    return Fact(
        slug=words.slug,
        mechanism=words.mechanism,
        culprit=place,
        effect=f"{words.effect}; {plural(len(behind), 'parameter')} ({percent(share)} of the "
        "elements) are behind it",
        weight=weight(words.situation, share),
        explanation=[words.before, place, words.after],
        parameters=tuple(sorted(behind)),
        share=share,
        events=tuple(graph.op_seqs[each] for each in ops[:2]),
        fix=words.fix,
    )
