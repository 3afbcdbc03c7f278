"""Ranges of values that follow from the ops that made them, and what cannot be meant given those.

A softmax is between 0 and 1 and a square is not negative, whatever the input is. A loss that takes
logits or log-probabilities gets something else then, and a comparison may have one result only.
NaN is in no range, and changes no answer here.
"""

from __future__ import annotations

from math import inf, log, prod
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from autogradviz.analysis.causal_graph import NO_OP
from autogradviz.diagnose.evidence.evidence import once_per_recording

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from autogradviz.analysis.causal_graph import CausalGraph
    from autogradviz.diagnose.evidence.evidence import Evidence

Range: TypeAlias = tuple[float, float]

_ANY: Final[Range] = (-inf, inf)
_UNIT: Final[Range] = (0.0, 1.0)
_POSITIVE: Final[Range] = (0.0, inf)
_BY_NAME: Final[dict[str, Range]] = {
    **dict.fromkeys(("_softmax", "_safe_softmax", "sigmoid", "hardsigmoid"), _UNIT),
    **dict.fromkeys(("_log_softmax", "log_sigmoid_forward"), (-inf, 0.0)),
    **dict.fromkeys(("tanh", "sin", "cos"), (-1.0, 1.0)),
    **dict.fromkeys(
        ("relu", "abs", "square", "exp", "sqrt", "linalg_vector_norm", "mse_loss", "l1_loss",
         "smooth_l1_loss", "huber_loss", "softplus", "_cdist_forward", "std", "var"),
        _POSITIVE,
    ),
}  # fmt: skip
"""The results of ops that have these ranges whatever they are given."""
_KEEPING: Final = frozenset({
    "clone", "_to_copy", "mean", "select", "index", "index_select", "gather", "cat", "stack",
    "_unsafe_view", "amax", "amin", "max", "min", "topk", "sort", "repeat", "roll", "flip",
    "median", "masked_select", "maximum", "minimum", "constant_pad_nd", "take_along_dim",
})  # fmt: skip
"""Ops whose results are among the values of their inputs, or means of them; pads are zeros."""
PAIR: Final = 2


class _Op(NamedTuple):
    """The parts of an op that the range of its result depends on."""

    name: str
    given: Sequence[Range]
    numbers: Mapping[str, float]  # arguments that are numbers
    same: bool  # it has one tensor as both operands


@once_per_recording
def ranges_of(evidence: Evidence) -> Ranges:
    """Return the ranges of the results of all ops."""
    return Ranges(evidence.causal_graph)


class Ranges:
    """The ranges of the first results of all ops, by op."""

    def __init__(self, graph: CausalGraph) -> None:
        self._graph = graph
        self._known: dict[int, Range] = {}
        for index in range(len(graph.op_names)):
            found = (-inf, 0.0) if self.subtracts_maximum(index) else self._of(index)
            if found != _ANY:
                self._known[index] = found

    def __getitem__(self, index: int) -> Range:
        return self._known.get(index, _ANY)

    def of_input(self, index: int, position: int) -> Range:
        """Return the range of an input of an op."""
        return self[self._graph.producers(index)[position]]

    def numbers(self, index: int) -> dict[str, float]:
        """Return the arguments of an op that are numbers."""
        return self._graph.analysis.numbers_of(self._graph.op_seqs[index])

    def _of(self, index: int) -> Range:
        graph = self._graph
        name = graph.op_names[index]
        if not graph.outputs[index] or not graph.inputs[index] or graph.failed[index]:
            return _ANY
        if graph.written[index]:
            tensor = graph.analysis.tensors[graph.inputs[index][0]]
            if tensor.nbytes != tensor.storage_nbytes:  # the rest of the memory keeps its values
                return _ANY
            name = name.removesuffix("_")
        if name not in _KEEPING and name not in _COMPUTED:
            return _BY_NAME.get(name, _ANY)
        given = [self[each] for each in graph.producers(index)]
        same = len(graph.inputs[index]) == PAIR and len(set(graph.inputs[index])) == 1
        if all(each == _ANY for each in given) and not (same or name in _WITHOUT_INPUT):
            return _ANY
        if name in _KEEPING:
            found = _hull(given[:1] if name not in _SEVERAL else given)
            return _hull([found, (0.0, 0.0)]) if name == "constant_pad_nd" else found
        return _COMPUTED[name](_Op(name, given, self.numbers(index), same))

    def subtracts_maximum(self, index: int) -> bool:
        """Return whether an op subtracts from a tensor its maximum over some dimensions.

        They must be kept, or all of them be reduced: else a row may meet the maximum of another.
        """
        graph = self._graph
        if graph.op_names[index] != "sub" or graph.failed[index]:
            return False
        if len(graph.inputs[index]) != PAIR or self.numbers(index).get("alpha", 1.0) != 1.0:
            return False
        of, largest = graph.inputs[index]
        made = graph.producers(index)[1]
        if made == NO_OP or graph.op_names[made] not in {"max", "amax"}:
            return False
        shapes = [graph.analysis.tensors[each].shape for each in (of, largest)]
        return (
            graph.inputs[made] == (of,)
            and graph.producers(made)[0] == graph.producers(index)[0]
            and len(shapes[1]) in {0, len(shapes[0])}
            and shapes[1] == graph.analysis.tensors[graph.outputs[made][0]].shape
        )


def _hull(ranges: Sequence[Range]) -> Range:
    return min(low for low, _ in ranges), max(high for _, high in ranges)


def _scaled(of: Range, factor: float) -> Range:
    ends = [0.0 if factor == 0 else end * factor for end in of]
    return min(ends), max(ends)


def _mul(op: _Op) -> Range:
    if op.same:
        return _POSITIVE
    if len(op.given) == 1:
        return _scaled(op.given[0], op.numbers["other"]) if "other" in op.numbers else _ANY
    signs = [_sign(each) for each in op.given]
    if 0 in signs:
        return _ANY
    if all(sign > 0 for sign in signs):
        highest = [high for _, high in op.given]
        return 0.0, inf if inf in highest else prod(highest)
    return _POSITIVE if prod(signs) > 0 else (-inf, 0.0)


def _div(op: _Op) -> Range:
    if len(op.given) == 1:
        number = op.numbers.get("other")
        return _scaled(op.given[0], 1 / number) if number else _ANY
    signs = [_sign(each) for each in op.given]
    return _ANY if 0 in signs else _POSITIVE if prod(signs) > 0 else (-inf, 0.0)


def _sign(of: Range) -> int:
    return 1 if of[0] >= 0 else -1 if of[1] <= 0 else 0


def _sum_of(op: _Op) -> Range:
    first, alpha = op.given[0], op.numbers.get("alpha", op.numbers.get("*alpha", 1.0))
    if len(op.given) == 1:
        if "other" not in op.numbers:
            return _ANY
        second = op.numbers["other"], op.numbers["other"]
    else:
        second = op.given[1]
    if op.name == "rsub":
        first, second = second, first
    second = _scaled(second, alpha if op.name == "add" else -alpha)
    return first[0] + second[0], first[1] + second[1]


def _pow(op: _Op) -> Range:
    even = op.numbers.get("exponent", 1.0) % 2 == 0
    return _POSITIVE if even or op.given[0][0] >= 0 else _ANY


def _clamp(op: _Op) -> Range:
    low, high = op.given[0]
    least, most = op.numbers.get("min", -inf), op.numbers.get("max", inf)
    return min(max(low, least), most), max(min(high, most), least)


def _log(op: _Op) -> Range:
    low, high = op.given[0]
    return (log(low) if low > 0 else -inf), (log(high) if 0 < high < inf else inf)


def _sum(op: _Op) -> Range:
    return (_POSITIVE, _ANY, (-inf, 0.0))[1 - _sign(op.given[0])]


def _neg(op: _Op) -> Range:
    return _scaled(op.given[0], -1.0)


def _where(op: _Op) -> Range:
    return _hull(op.given[1:]) if len(op.given) > PAIR else _ANY


_COMPUTED: Final[dict[str, Callable[[_Op], Range]]] = {
    "mul": _mul, "div": _div, "add": _sum_of, "sub": _sum_of, "rsub": _sum_of, "pow": _pow,
    "clamp": _clamp, "clamp_min": _clamp, "hardtanh": _clamp, "log": _log, "sum": _sum,
    "neg": _neg, "where": _where,
}  # fmt: skip
_WITHOUT_INPUT: Final = frozenset({"pow", "clamp", "clamp_min"})
"""Ops that have a range also if that of their input is not known."""
_SEVERAL: Final = frozenset({"cat", "stack", "maximum", "minimum"})
