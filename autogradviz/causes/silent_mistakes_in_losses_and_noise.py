"""Mistakes that raise nothing: broadcast losses, repeated noise, trained targets, constants."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Final, NamedTuple

from autogradviz.analysis.causal_graph import NO_OP
from autogradviz.analysis.formatting import format_shape, percent, plural
from autogradviz.causes.order_of_facts import weight
from autogradviz.diagnose.blame.search_gradient_cuts import COMPARING
from autogradviz.diagnose.fact import Fact
from autogradviz.diagnose.source.operands_changed_as_fixes import (
    expression_of,
    operand,
    with_operand_changed,
)
from autogradviz.events import NO_ID

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from autogradviz.analysis import SourceLocation
    from autogradviz.analysis.causal_graph import CausalGraph
    from autogradviz.diagnose.finding import Mechanism


_COMBINING: Final = frozenset({"mul", "div", "add"})
"""Operators that combine the elements of two tensors, as a weight with the loss of its sample."""
_WITH_TARGET: Final = frozenset({"mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "kl_div"})
"""Losses whose second operand is a target."""
_DRAWING: Final = frozenset(
    {
        "rand", "rand_like", "randn", "randn_like", "normal", "normal_", "uniform_", "bernoulli",
        "bernoulli_", "exponential_",
    }
)  # fmt: skip
"""Operators whose results are random."""
_OF_NOISE: Final = frozenset(
    {"mul", "mul_", "div", "div_", "add", "add_", "clamp", "clamp_", "neg", "_to_copy", "detach"}
)
"""Operators with which noise is scaled and bounded, or converted."""
_POINTWISE: Final = frozenset({"pow", "abs", "mul", "square", "neg", "div", "where", "clamp_min"})
_REDUCING: Final = frozenset({"mean", "sum"})
_DEPTH: Final = 4  # operators between a comparison and its reduction
_NEAR: Final = 12  # operators from a softmax to the product of attention
_OPERANDS: Final = 2

_RESHAPING: Final = frozenset({"view", "_unsafe_view", "_reshape_alias"})
_PADDING: Final = frozenset({"cat", "constant_pad_nd"})
_TRANSPOSING: Final = frozenset({"transpose", "permute", "movedim", "t"})

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
    more: tuple[str | SourceLocation | None, ...] = ()  # lines of the explanation


def find_silent_mistakes(graph: CausalGraph) -> Iterator[Fact]:
    """Yield facts about losses over all pairs, noise, targets, views, and constant results."""
    yield from _mismatched(graph)
    yield from _constant_results(graph)
    yield from _repeated_noise(graph)
    yield from _trained_targets(graph)
    yield from _trained_advantages(graph)
    yield from _mixing_views(graph)


def _mismatched(graph: CausalGraph) -> Iterator[Fact]:
    """Yield facts about operands that an op broadcasts, and that were to have one shape."""
    pairs: dict[SourceLocation, list[int]] = defaultdict(list)
    stretched: dict[SourceLocation, list[int]] = defaultdict(list)
    names = COMPARING | _COMBINING
    in_backward = (
        index
        for index, phase in enumerate(graph.phases)
        if phase == "backward"
        and graph.is_users(index)
        and not graph.analysis.is_engine(graph.stacks[index])
    )
    for index in (*graph.slice_ops, *in_backward):
        stack = graph.analysis.user_stack(graph.stacks[index])
        if graph.op_names[index] not in names or not stack:
            continue
        if _compares_all_pairs(graph, index):
            pairs[stack[0]].append(index)
        elif _is_stretched(graph, index):
            stretched[_line_of_larger(graph, index) or stack[0]].append(index)
    for place, ops in pairs.items():
        yield _fact(graph, place, ops, partial(_pairs, place))
    for place, ops in stretched.items():
        yield _fact(graph, place, ops, _broadcast)


def _constant_results(graph: CausalGraph) -> Iterator[Fact]:
    """Yield a fact for each line that always normalizes over one element."""
    constant: dict[SourceLocation, list[int]] = defaultdict(list)
    varying: set[SourceLocation] = set()  # lines that normalize more elements in another call
    for index in graph.slice_ops:
        stack = graph.analysis.user_stack(graph.stacks[index])
        if graph.op_names[index] not in _NORMALIZING or not stack:
            continue
        if _is_constant(graph, index):
            constant[stack[0]].append(index)
        else:
            varying.add(stack[0])
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
    if len(graph.inputs[index]) < _OPERANDS:
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
    line = graph.analysis.location(graph.stacks[index])
    added = [
        view
        for view in graph.views(index)
        if view != NO_OP
        and graph.op_names[view] == "unsqueeze"
        and graph.analysis.location(graph.stacks[view]) == line
    ]
    if graph.phases[index] == "backward":  # of a hand-written formula
        return not added
    return not added and (result == () or _is_reduced(graph, index, prod(pairs)))


def _is_stretched(graph: CausalGraph, index: int) -> bool:
    """Return whether a loss function broadcasts one operand, of several elements, by itself."""
    if graph.op_names[index] not in _WITH_TARGET or graph.phases[index] != "forward":
        return False
    shapes = _operands(graph, index)[:_OPERANDS]
    by_itself = any(
        view != NO_OP and graph.op_names[view] == "expand" and not graph.is_users(view)
        for view in graph.views(index)
    )
    return by_itself and shapes[0] != shapes[-1] and min(map(prod, shapes)) >= _OPERANDS


def _line_of_larger(graph: CausalGraph, index: int) -> SourceLocation | None:
    """Return the line that computed what made the larger operand of a loss larger than the other.

    It is None if the operand was not computed from values of the smaller shape, too.
    """
    shapes = _operands(graph, index)[:_OPERANDS]
    at = graph.producers(index)[max(range(_OPERANDS), key=lambda each: prod(shapes[each]))]
    grew = False
    while at != NO_OP and graph.op_names[at] in _POINTWISE | _COMBINING | COMPARING:
        sizes = [prod(graph.analysis.tensors[each].shape) for each in graph.inputs[at]]
        if len(sizes) > 1 and min(sizes) == max(sizes):
            break
        grew |= len(sizes) > 1 and min(sizes) > 1
        at = graph.producers(at)[sizes.index(max(sizes))]
    stack = graph.analysis.user_stack(graph.stacks[at]) if grew and at != NO_OP else ()
    return stack[0] if stack else None


def _broadcast(graph: CausalGraph, ops: list[int]) -> _Words:
    first, second = (format_shape(each) for each in _operands(graph, ops[0])[:_OPERANDS])
    return _Words(
        slug="loss-broadcast",
        mechanism="change",
        effect=f"{graph.op_names[ops[0]]} broadcasts its operands of shapes {first} and {second}, "
        f"{plural(len(ops), 'time')}",
        situation="loss of all pairs",
        before=f"A {graph.op_names[ops[0]]} compares tensors of different shapes. This line has "
        "the dimension that one of them lacks:",
        after="Each element of one is compared with several of the other. A value that is to be "
        "summed over a dimension first was not.",
        fix="# give both the same shape, where the larger one is computed",
    )


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


def _pairs(place: SourceLocation, graph: CausalGraph, ops: list[int]) -> _Words:
    name, shapes = graph.op_names[ops[0]], _operands(graph, ops[0])[:_OPERANDS]
    first, second = map(format_shape, shapes)
    does = "compares" if name in COMPARING else "combines"
    in_backward = graph.phases[ops[0]] == "backward"
    return _Words(
        slug="loss-broadcast",
        mechanism="change",
        effect=f"{expression_of(place, name) or name}, of shapes {first} and {second}, {does} each "
        f"element with every element of the other, {plural(len(ops), 'time')}",
        situation="loss of all pairs",
        before=f"This line {does} tensors of the same number of elements and different shapes:",
        after="Both are broadcast to all pairs, and so is the gradient that it computes."
        if in_backward
        else "Both are broadcast to all pairs, and the loss is the mean or sum of them: the "
        "gradient pulls each prediction to the targets of all samples."
        if does == "compares"
        else "Both are broadcast to all pairs, and the loss is the mean or sum of them: each "
        "sample gets the weights of all samples.",
        fix=_of_one_shape(place, name, shapes)
        or "# give both the same shape: prediction.squeeze(-1), or target.view_as(prediction)",
        more=_maker_of_column(place, graph, ops[0], shapes),
    )


def _maker_of_column(
    place: SourceLocation, graph: CausalGraph, index: int, shapes: list[tuple[int, ...]]
) -> tuple[str | SourceLocation | None, ...]:
    """Return the line that made the operand with more dimensions, if it is another one."""
    position = max(range(_OPERANDS), key=lambda each: len(shapes[each]))
    shape = shapes[position]
    at, ends = index, False
    while not ends:
        view = graph.views(at)[position]
        at = graph.producers(at)[position] if view == NO_OP else view
        position = 0
        ends = (
            at == NO_OP
            or not graph.inputs[at]
            or (view == NO_OP or graph.analysis.tensors[graph.inputs[at][0]].shape != shape)
        )
        if NO_OP not in {view, at} and graph.op_names[at] == "expand":
            ends = False
    stack = graph.analysis.user_stack(graph.stacks[at]) if at != NO_OP else ()
    if not stack or stack[0] == place:
        return ()
    return f"The operand of shape {format_shape(shape)} is made here:", stack[0]


def _of_one_shape(place: SourceLocation, name: str, shapes: list[tuple[int, ...]]) -> str | None:
    """Return the statement that compares two tensors, with both in the shape of one of them."""
    for position, (own, other) in enumerate((shapes, shapes[::-1])):
        if own == (*other, 1):
            return with_operand_changed(place, name, position, "{}.squeeze(-1)")
    first = operand(place, name, 0)
    return first and with_operand_changed(place, name, 1, f"{{}}.reshape_as({first})")


# --- noise of fewer dimensions than what it changes ---------------------------------------------


def _repeated_noise(graph: CausalGraph) -> Iterator[Fact]:
    """Yield a fact for each line that draws noise of one sample, which is added to all of them."""
    groups: dict[SourceLocation, list[tuple[int, int, int]]] = defaultdict(list)
    for index in sorted(graph.value_slice):
        name, given = graph.op_names[index], graph.inputs[index]
        if name not in _OF_NOISE or len(given) != _OPERANDS or graph.phases[index] != "forward":
            continue
        shapes = _operands(graph, index)
        for position in range(_OPERANDS):
            own, other = shapes[position], shapes[1 - position]
            missing = other[: len(other) - len(own)]
            drawn = graph.producers(index)[position]
            result = graph.analysis.tensors[graph.outputs[index][0]].shape
            if prod(own) < _OPERANDS or prod(missing) < _OPERANDS or result != other:
                continue
            drawn = _drawn(graph, drawn)
            place = None if drawn == NO_OP else graph.analysis.location(graph.stacks[drawn])
            if place is not None and graph.analysis.user_stack(graph.stacks[drawn]):
                groups[place].append((index, position, drawn))
    ends = [step.seq for step in graph.steps]
    for place, found in groups.items():
        steps = {bisect_left(ends, graph.op_seqs[drawn]) for _, _, drawn in found}
        if len(steps) == 1 and not graph.op_names[found[0][2]].endswith("_like"):
            continue  # values that stay, as those of a weight
        index, position, _ = found[0]
        shapes = _operands(graph, index)
        shown, whole = (format_shape(shapes[at]) for at in (position, 1 - position))
        used = graph.analysis.location(graph.stacks[index])
        yield Fact(
            slug="noise-broadcast",
            mechanism="change",
            culprit=place,
            effect=f"random values of shape {shown} are broadcast to {whole}, "
            f"{plural(len(found), 'time')}: all samples get the same",
            weight=weight("noise of one sample"),
            explanation=[
                "The random values are drawn here:",
                place,
                "They are combined with a tensor of more dimensions here:",
                used,
            ],
            victim=used,
            events=(graph.op_seqs[index],),
            fix="torch.randn_like(x)  # of the tensor that the noise is added to",
        )


# --- advantages of policy gradients that are trained as well --------------------------------------


_ERRORS: Final = frozenset({"mse_loss", "smooth_l1_loss", "huber_loss", "l1_loss"})
_LOGARITHMS: Final = frozenset({"log", "_log_softmax"})
_CHOOSING: Final = frozenset({"gather", "index", "select", "nll_loss_forward"})
_WAY: Final = 6  # ops between a logarithm and the product


def _trained_advantages(graph: CausalGraph) -> Iterator[Fact]:
    """Yield a fact for each product of a chosen log-probability and an error that passes gradients.

    The parameters behind the error alone get the gradient of a squared error, too: they are those
    of a critic, which now learns to make the product small.
    """
    regressed: set[int] | None = None
    found: dict[SourceLocation, tuple[int, set[int], int]] = {}
    for index in graph.slice_ops:
        edges = graph.next_nodes.get(graph.node_of_op.get(index, NO_ID), ())
        if graph.op_names[index] != "mul" or len(edges) != _OPERANDS or NO_ID in edges:
            continue
        # A mode may have multiplied other tensors than the node has, or a number.
        for position, (edge, made) in enumerate(zip(edges, graph.producers(index), strict=False)):
            if not is_chosen_log(graph, made):
                continue
            own, weights = graph.reached_leaves(edge), graph.reached_leaves(edges[1 - position])
            if regressed is None:
                regressed = _of_errors(graph)
            place = next(iter(graph.analysis.user_stack(graph.stacks[index])), None)
            if place is not None and (alone := (weights - own) & regressed):
                found.setdefault(place, (index, set(), position))[1].update(alone)
    for place, (index, leaves, position) in found.items():
        share = graph.share(leaves)
        yield Fact(
            slug="loss-target-trained",
            mechanism="change",
            culprit=place,
            effect="the factor of a log-probability has a gradient, too: "
            f"{plural(len(leaves), 'parameter')} ({percent(share)} of the elements), which a "
            "squared error trains, can make the product small",
            weight=weight("trained advantage", share),
            explanation=[
                "A log-probability that an index chose is multiplied by a value with a graph:",
                place,
                "In a policy gradient the factor is a number. What computes it here is trained by "
                "an error of its own, and by this loss as well.",
            ],
            parameters=tuple(sorted(leaves)),
            share=share,
            events=(graph.op_seqs[index],),
            fix=with_operand_changed(place, "mul", 1 - position, "{}.detach()")
            or "loss = -(log_prob * advantage.detach()).mean()",
        )


def is_chosen_log(graph: CausalGraph, index: int) -> bool:
    """Return whether an op's result is a chosen log-probability, times what has no gradient."""
    names: set[str] = set()
    for _ in range(_WAY):
        if index == NO_OP or graph.numbers[index] is None:
            return False
        name = graph.op_names[index]
        names.add(name)
        made = graph.producers(index)
        if name == "sub" and any(graph.op_names[i] == "logsumexp" for i in made if i != NO_OP):
            names.add("_log_softmax")  # as torch.distributions computes it
        if names & _LOGARITHMS and names & _CHOOSING:
            return True
        if name not in _LOGARITHMS | _CHOOSING | _OF_NOISE | {"sum", "squeeze", "sub"}:
            return False
        graphs = [
            position for position in graph.value_inputs(index) if graph.has_graph(index, position)
        ]
        if len(graphs) != 1:
            return False
        index = graph.producers(index)[graphs[0]]
    return False


def _of_errors(graph: CausalGraph) -> set[int]:
    """Return the leaves that squared and absolute errors reach."""
    found: set[int] = set()
    for index in graph.slice_ops:
        name, node = graph.op_names[index], graph.node_of_op.get(index)
        is_square = (
            name == "pow"
            and graph.analysis.numbers_of(graph.op_seqs[index]).get("exponent") == _OPERANDS
        )
        if node is not None and (name in _ERRORS or is_square):
            found |= graph.reached_leaves(node)
    return found


# --- targets that are trained as well -------------------------------------------------------------


def _trained_targets(graph: CausalGraph) -> Iterator[Fact]:
    """Yield a fact for each line whose loss has a gradient for its target, too."""
    groups: dict[SourceLocation, tuple[int, set[int]]] = {}
    for index in graph.slice_ops:
        edges = graph.next_nodes.get(graph.node_of_op[index], ())
        if graph.op_names[index] not in _WITH_TARGET or len(edges) != _OPERANDS or NO_ID in edges:
            continue
        prediction, target = (graph.reached_leaves(each) for each in edges)
        place = next(iter(graph.analysis.user_stack(graph.stacks[index])), None)
        if place is not None and prediction & target:
            groups.setdefault(place, (index, set()))[1].update(prediction & target)
    for place, (index, leaves) in groups.items():
        share = graph.share(leaves)
        yield Fact(
            slug="loss-target-trained",
            mechanism="change",
            culprit=place,
            effect=f"the target of {graph.op_names[index]} has a gradient, too: "
            f"{plural(len(leaves), 'parameter')} ({percent(share)} of the elements) can bring "
            "both together",
            weight=weight("trained target", share),
            explanation=[
                "Both operands of this loss are computed from the same parameters, and both pass "
                "gradients on:",
                place,
                "The target follows the prediction, which makes the loss small without any "
                "agreement with data.",
            ],
            parameters=tuple(sorted(leaves)),
            share=share,
            events=(graph.op_seqs[index],),
            fix=with_operand_changed(place, graph.op_names[index], 1, "{}.detach()")
            or "# target.detach(), if only the prediction is to be trained",
        )


def _drawn(graph: CausalGraph, index: int) -> int:
    """Return the op that drew the values of an op's result, NO_OP if it has others too."""
    while index != NO_OP and graph.op_names[index] not in _DRAWING:
        if graph.op_names[index] not in _OF_NOISE or len(graph.inputs[index]) != 1:
            return NO_OP
        index = graph.producers(index)[0]
    return index


# --- views in which elements change their axis ----------------------------------------------------


def _mixing_views(graph: CausalGraph) -> Iterator[Fact]:
    """Yield a fact for each line that reshapes a tensor as if that could reorder its axes."""
    groups: dict[SourceLocation, list[int]] = defaultdict(list)
    transposed = {
        each
        for index, name in enumerate(graph.op_names)
        if name in _TRANSPOSING
        for each in graph.inputs[index][:1]
    }
    for index in graph.slice_ops:
        stack = graph.analysis.user_stack(graph.stacks[index])
        if graph.op_names[index] not in _RESHAPING or not stack:
            continue
        given, made = _shapes_of_view(graph, index)
        mixes = _exchanges_axes(given, made) or _exchanges_axes(made, given)
        if transposed.intersection(graph.outputs[index]) and _moves_a_factor(given, made):
            continue  # heads beside the batch: the axes are exchanged afterwards
        if mixes and not _is_shift(graph, index) and not _is_of_transposed(graph, index):
            groups[stack[0]].append(index)
    for place, ops in groups.items():
        yield _fact(graph, place, ops, _exchanged)


def _shapes_of_view(graph: CausalGraph, index: int) -> tuple[list[int], list[int]]:
    """Return the sizes, without those of 1, of what a view is of, and of the view."""
    tensors = graph.analysis.tensors
    given, made = (
        [size for size in tensors[each[0]].shape if size != 1]
        for each in (graph.inputs[index], graph.outputs[index])
    )
    return given, made


def _exchanges_axes(given: list[int], made: list[int]) -> bool:
    """Return whether a view has the axes of a tensor in another order.

    One axis may be divided into two. A view keeps the order of the elements in memory, so those of
    an axis are not those of the axis of the same size then. Sizes that occur twice say nothing.
    """
    if len(set(given)) < len(given) or len(given) < _OPERANDS:
        return False
    if len(made) == len(given):
        return given != made and sorted(given) == sorted(made)
    for at, divided in enumerate(given):
        before, after = given[:at], given[at + 1 :]
        parts = list((Counter(made) - Counter(before + after)).elements())
        is_divided = len(parts) == _OPERANDS and prod(parts) == divided
        if is_divided and len(made) == len(given) + 1:
            orders = parts, parts[::-1]
            return all(made != [*before, *order, *after] for order in orders)
    return False


def _is_of_transposed(graph: CausalGraph, index: int) -> bool:
    """Return whether a view joins the axes of what was transposed for it."""
    made = graph.producers(index)[0]
    copied = made != NO_OP and graph.op_names[made] == "clone"
    shown = graph.views(made if copied else index)[0]
    return shown != NO_OP and graph.op_names[shown] in _TRANSPOSING


def _moves_a_factor(given: list[int], made: list[int]) -> bool:
    """Return whether a view divides an axis and joins a part with the axis before it.

    ``[length, batch, heads * size]`` becomes ``[length, batch * heads, size]`` so, which looks like
    an exchange if the batch is as large as ``size``.
    """
    changed = [at for at, sizes in enumerate(zip(given, made, strict=False)) if len(set(sizes)) > 1]
    if len(given) != len(made) or len(changed) != _OPERANDS or changed[1] != changed[0] + 1:
        return False
    first = changed[0]
    return made[first] % given[first] == 0


def _is_shift(graph: CausalGraph, index: int) -> bool:
    """Return whether the rows of a padded tensor are shifted by a view, as relative positions."""
    made = graph.producers(index)[0]
    return made != NO_OP and graph.op_names[made] in _PADDING


def _exchanged(graph: CausalGraph, ops: list[int]) -> _Words:
    given, made = (
        format_shape(graph.analysis.tensors[each[0]].shape)
        for each in (graph.inputs[ops[0]], graph.outputs[ops[0]])
    )
    return _Words(
        slug="view-mixes-axes",
        mechanism="change",
        effect=f"a view of {given} as {made} has the sizes in another order, "
        f"{plural(len(ops), 'time')}: its elements are not those of the same axes",
        situation="view of exchanged axes",
        before="A view keeps the order of the elements in memory, and exchanges no axes:",
        after=f"{given} becomes {made}: elements of one axis are spread over others.",
        fix="# x.transpose(1, 2) or x.permute(...) exchange axes; view() and reshape() do not",
    )


# --- results that cannot vary -------------------------------------------------------------------


def _is_constant(graph: CausalGraph, index: int) -> bool:
    """Return whether an op normalizes over a dimension of one element: 1, or log 1."""
    given = graph.analysis.numbers_of(graph.op_seqs[index])
    if "dim" not in given or graph.op_names[index] not in _NORMALIZING:
        return False
    dim = int(given["dim"])
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
    behind = graph.parameters_behind(*ops)
    share = graph.share(behind)
    words = make(graph, ops)
    return Fact(
        slug=words.slug,
        mechanism=words.mechanism,
        culprit=place,
        effect=f"{words.effect}; {plural(len(behind), 'parameter')} ({percent(share)} of the "
        "elements) are behind it",
        weight=weight(words.situation, share),
        explanation=[words.before, place, words.after, *words.more],
        parameters=tuple(sorted(behind)),
        share=share,
        events=tuple(graph.op_seqs[each] for each in ops[:2]),
        fix=words.fix,
    )
