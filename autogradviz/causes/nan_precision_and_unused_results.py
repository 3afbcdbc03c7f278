"""Facts about values: not finite, precision, results that nothing reads."""

from __future__ import annotations

import ast
import math
import re
from collections import defaultdict
from itertools import pairwise, takewhile
from math import inf, prod
from typing import TYPE_CHECKING, Final

from autogradviz.analysis.causal_graph import NO_OP
from autogradviz.analysis.formatting import percent, plural
from autogradviz.analysis.op_calls_and_arguments import MEANS
from autogradviz.causes.order_of_facts import weight
from autogradviz.causes.ranges_implied_by_ops import ranges_of
from autogradviz.causes.singular_operands import find_singular_ops
from autogradviz.diagnose.fact import Fact
from autogradviz.diagnose.finding_text import describe_tensor
from autogradviz.diagnose.source import source_index as source
from autogradviz.diagnose.source.operands_changed_as_fixes import with_operand_kept_away
from autogradviz.diagnose.source.parameters_replaced_after_optimizer import optimizer_lines
from autogradviz.diagnose.source.statements_rewritten_as_fixes import assigned, safe_input
from autogradviz.events import LossRead, NormRead
from autogradviz.support.dtype_precision import SIGNIFICAND_BITS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from autogradviz.analysis import SourceLocation
    from autogradviz.analysis.causal_graph import CausalGraph
    from autogradviz.diagnose.evidence.evidence import Evidence
    from autogradviz.events import SingularOperandRead


# --- not finite -----------------------------------------------------------------------------------
#
# NaN and infinity without fingerprints: the ops that every bad gradient passed, and no good one.
#
# A value that is not finite spreads: every gradient that is computed from it is not finite. So the
# node that gave the first one leads to bad leaves only.


_DERIVATIVE: Final = {
    "sqrt": "its derivative is infinite at 0",
    "norm": "it has no derivative at 0",
    "linalg_vector_norm": "it has no derivative at 0",
    "std": "it has no derivative where all entries are equal",
    "pow": "negative and fractional powers are infinite or have infinite derivatives at 0",
    "acos": "its derivative is infinite at 1 and -1",
    "asin": "its derivative is infinite at 1 and -1",
    "atan2": "it has no derivative at the origin",
}
"""Ops whose derivative is singular where their value is not, or need not be."""
_VALUE: Final = {
    "rsqrt": "it and its derivative are infinite at 0",
    "log": "it and its derivative are infinite at 0",
    "log2": "it and its derivative are infinite at 0",
    "log10": "it and its derivative are infinite at 0",
    "log1p": "it and its derivative are infinite at -1",
    "div": "a divisor of 0 gives infinity or NaN",
    "reciprocal": "it is infinite at 0",
    "exp": "it overflows above 88 in float32",
    "expm1": "it overflows above 88 in float32",
    "atanh": "it is infinite at 1 and -1",
    "logit": "it is infinite at 0 and 1",
    "_softmax": "a row in which every entry is minus infinity gives NaN",
    "_ctc_loss": "it is infinite if an input is shorter than its target, and zero_infinity=False",
}
_SINGULAR: Final = {**_DERIVATIVE, **_VALUE}
_AT_SAVED: Final = {
    **_SINGULAR,
    "_log_softmax": _VALUE["_softmax"],
    "_linalg_eigh": "eigenvectors of equal eigenvalues have no derivative",
    "_linalg_svd": "vectors of equal singular values have no derivative",
    "rsqrt": "its derivative overflows next to 0",
}
"""The same, with ops that are singular only at operands which were read."""
_FIX_AT_SAVED: Final = {
    "_softmax": "# leave at least one entry of each row unmasked",
    "_log_softmax": "# leave at least one entry of each row unmasked",
    "_linalg_eigh": "# use the eigenvalues alone, or add different small numbers to the diagonal",
    "_linalg_svd": "# use the singular values alone, or add small noise to the matrix",
    "exp": "# subtract the largest entry first, or limit the argument: x.clamp(max=20)",
    "rsqrt": "# compute it in float32: torch.rsqrt(x.float() + 1e-6)",
}
_SAFE_ABOVE: Final = {
    **dict.fromkeys(
        ("sqrt", "norm", "pow", "rsqrt", "log", "log2", "log10", "reciprocal", "div"), 0.0
    ),
    "log1p": -1.0,
}
"""Ops that are finite, with their derivatives, if the last operand is above a number."""
_SPREADS: Final = frozenset({"std", "var", "std_mean", "var_mean"})
_ADDS_MASK: Final = 3  # ops between a number that is minus infinity and a softmax
_FACTORS: Final = frozenset({"mul", "mul_"})
_AT_MOST: Final = 4
_OVERFLOWING: Final = frozenset({"mul", "exp", "pow", "prod", "cumprod"})
_ONLY_GROWS: Final = frozenset({"mul", "prod", "cumprod"})
"""Ops that overflow after other values have become large; an exponential does so at once."""
_EXP_OVERFLOWS: Final = 88.0  # in float32
_PRODUCTS: Final = frozenset({"mm", "addmm", "bmm", "baddbmm", "convolution"})
_GROWTH: Final = 3.0  # of one loss to the next
_FEWEST: Final = 2  # losses that show that they grow
_SHOWN: Final = 4
_LARGE: Final = 1e10  # a factor that makes overflow in float32 probable
_KEEPS_NOT_FINITE: Final = frozenset({
    "add", "sub", "rsub", "neg", "mul", "div", "sum", "mean", "abs", "mse_loss", "_to_copy",
    "clone", "stack", "cat", "square", "logsumexp",
})  # fmt: skip
"""Ops that give a value which is not finite if an entry of an operand is; "div" of its dividend."""
_WHOLE_VIEWS: Final = frozenset({
    "view", "_unsafe_view", "reshape", "expand", "unsqueeze", "squeeze", "t", "transpose",
    "permute",
})  # fmt: skip
_CHOOSING: Final = {"where": (0, (1, 2)), "masked_fill": (1, (0,)), "masked_fill_": (1, (0,))}
"""By op: the position of the condition, and of the values that are chosen or replaced."""
_PAIR: Final = 2
_HEALED: Final = 4.0  # rank among lines that may have given NaN: the program itself expects it
_SAYS_SO: Final = re.compile(r"\b(nan|inf|infinite|non-?finite)\b", re.IGNORECASE)
_OF_VALUES: Final = re.compile(r"converge|ill-conditioned|singular|invalid values", re.IGNORECASE)
"""Words of exceptions that NaN in parameters may have caused."""


def find_not_finite(  # noqa: C901, PLR0912, PLR0915
    graph: CausalGraph, evidence: Evidence
) -> Iterator[Fact]:
    """Yield a fact for each line with an op that may have given the first NaN or infinity."""
    yield from _infinite_masks(graph, evidence)
    if "fingerprints" in evidence.recorded:
        return  # a rule names the op
    norms = graph.final_norms
    bad = {leaf for leaf, norm in norms.items() if norm is None}
    losses = graph.analysis.log.of(LossRead)
    bad_loss = [event for event in losses if event.loss is None]
    bad_root = any(
        place == "root" and norm is None
        for place, norm in graph.analysis.log.fields(NormRead, "place", "norm")
    )
    error = graph.analysis.error
    refused = error is not None and bool(_SAYS_SO.search(error.message))
    if not bad and not bad_loss and not bad_root and not refused:
        return
    good = {leaf for leaf, norm in norms.items() if norm is not None}
    first_is_bad = not losses or losses[0].loss is None
    in_forward = refused or (bool(bad_loss or bad_root) and first_is_bad)
    groups: dict[SourceLocation, list[int]] = {}
    if refused:
        ops: Iterable[int] = range(len(graph.phases))
    else:
        ops = sorted(_carries_not_finite(graph)) if in_forward else graph.slice_ops
    shown = _Shown(graph, evidence)
    read = find_singular_ops(graph, evidence, in_forward=in_forward and not refused)
    if not in_forward:
        places = {graph.analysis.location(graph.stacks[index]) for index, _ in read}
        healed = [fact for fact in _healed(graph, good) if not read or fact.culprit in places]
        if healed:
            yield from healed
            return
    if not in_forward and all(event.not_finite for _, event in read):
        grown = _grown_losses(evidence, losses, bad)
        if grown is not None:
            yield grown
            return
    raised = refused or (error is not None and bool(_OF_VALUES.search(error.message)))
    at_read = list(_at_singular_operands(graph, read, bad, raised=raised))
    if at_read:
        yield from at_read
        return
    if not in_forward:
        finite = _finite_because_of_loss(graph)
        ops = [index for index in ops if index not in finite or graph.op_names[index] not in _VALUE]
    surely = [index for index in graph.value_slice if shown.is_nan(index)]
    for index in surely or _candidates(graph, shown, set() if refused else good, ops):
        masked = shown.masked(index) if graph.op_names[index] == "_ctc_loss" else None
        place = graph.analysis.location(graph.stacks[index if masked is None else masked])
        if place is not None and graph.analysis.user_stack(graph.stacks[index]):
            groups.setdefault(place, []).append(index)
    if not in_forward and not surely and _stayed_small(losses):
        names = {place: {graph.op_names[i] for i in ops} for place, ops in groups.items()}
        sooner = {
            place
            for place, own in names.items()
            if not own <= _ONLY_GROWS or _Constants(place).large_factor
        }
        groups = {place: groups[place] for place in sooner or groups}
    dangers = {
        place: _danger(graph, shown, ops, place, in_forward) for place, ops in groups.items()
    }
    for place in sorted(groups, key=lambda each: -dangers[each])[:_AT_MOST]:
        found = groups[place]
        name = max((graph.op_names[i] for i in found), key=lambda n: n in _SINGULAR)
        why = shown.why(found[0]) if surely else _SINGULAR.get(name, "it may overflow")
        if name == "_ctc_loss" and shown.masked(found[0]) is not None:
            why = "the derivative at log-probabilities of minus infinity is NaN"
        gave = "gives NaN" if surely else "may have given the first NaN or infinity"
        yield Fact(
            mechanism="value",
            culprit=place,
            effect=f"{name} {gave}: {why}",
            weight=weight("NaN that raised" if refused else "NaN", dangers[place]),
            explanation=[
                f"Of the values that were read, {plural(len(bad), 'gradient')} and the losses of "
                f"{plural(len(bad_loss), 'backward')} are not finite.",
                "An op on every path to them, and on none to a finite gradient, is here:"
                if any(index in graph.node_of_op for index in found)
                else "The loss was computed from a value that was computed here:",
                place,
                f"{name}: {why}.",
                _where_it_arose(graph, in_forward=in_forward),
                "record(fingerprints=True) records which op gave the first such value.",
            ],
            confidence="hint",
            parameters=tuple(sorted(bad)),
            events=tuple(
                graph.op_seqs[i]
                for i in (found if in_forward or surely else _of_step(graph, losses, found))[:2]
            ),
            fix=with_operand_kept_away(place, name)
            or "# keep the argument away from the singular point, for example by clamp_min",
        )


def _of_step(graph: CausalGraph, losses: Sequence[LossRead], ops: Iterable[int]) -> list[int]:
    """Return the ops of the last step whose backward may have given the first such value.

    It is the step of the last loss before one that is not finite, or else the last step.
    """
    finite = list(takewhile(lambda event: event.loss is not None, losses))
    started = graph.backwards.get(finite[-1].backward_id) if finite else None
    steps, seqs = graph.analysis.steps, graph.op_seqs
    ops = sorted(ops)
    before = [i for i in ops if started is None or seqs[i] < started.seq] or ops
    return [i for i in before if steps.at(seqs[i]) == steps.at(seqs[before[-1]])]


def _at_singular_operands(
    graph: CausalGraph,
    read: Sequence[tuple[int, SingularOperandRead]],
    bad: set[int],
    *,
    raised: bool,
) -> Iterator[Fact]:
    """Yield a fact for each line whose op had operands at which it is not finite, in order."""
    found: dict[SourceLocation, tuple[int, SingularOperandRead]] = {}
    for index, event in read:
        place = graph.analysis.location(graph.stacks[index])
        if place is not None and graph.analysis.user_stack(graph.stacks[index]):
            found.setdefault(place, (index, event))
    for rank, (place, (index, event)) in enumerate([*found.items()][:_AT_MOST]):
        name = graph.op_names[index]
        called = name.lstrip("_")
        entries = f"{event.entries:,} {'entry' if event.entries == 1 else 'entries'}"
        why = _AT_SAVED.get(name, "it overflowed, or its operands were not finite")
        started = graph.backwards.get(event.backward_id)
        yield Fact(
            mechanism="value",
            culprit=place,
            effect=f"{called} gave NaN or infinity: {why}",
            weight=weight("NaN that raised" if raised else "NaN", _HEALED - rank),
            explanation=[
                f"{called} had {entries} here "
                + ("that were not finite:" if event.not_finite else "at its singular point:"),
                place,
                f"{called}: {why}.",
                "That was read from what it had saved, when this backward started:",
                None if started is None else graph.analysis.location(started.stack_id),
                "record(fingerprints=True) records each op that gave or passed on such a value.",
            ],
            confidence="hint",
            parameters=tuple(sorted(bad)),
            events=(graph.op_seqs[index], event.seq),
            fix=with_operand_kept_away(place, name)
            or _FIX_AT_SAVED.get(name)
            or "# keep the argument away from the singular point, for example by clamp_min",
        )


def _grown_losses(evidence: Evidence, losses: Sequence[LossRead], bad: set[int]) -> Fact | None:
    """Return the fact that each loss of a line was much larger than the one before.

    Then no op has a singular point: the steps diverge until the numbers of a dtype end.
    """
    steps = evidence.causal_graph.steps
    by_line: dict[SourceLocation | None, list[LossRead]] = defaultdict(list)
    for event in losses:
        by_line[evidence.backward_line(event.backward_id)].append(event)
    for line, read in by_line.items():
        values = [abs(event.loss) for event in read if event.loss is not None]
        ends = next((at for at, event in enumerate(read) if event.loss is None), len(read))
        grows = all(_GROWTH * one < other for one, other in pairwise(values))
        if ends != len(values) or ends < _FEWEST or not grows or values[-1] < _LARGE or not steps:
            continue
        stack = evidence.analysis.user_stack(steps[0].stack_id)
        made = optimizer_lines(evidence.user_files, {steps[0].optimizer_name}, stack)
        step = next(iter(stack), None)
        place = made[0] if len(made) == 1 else step
        return Fact(
            mechanism="value",
            culprit=place,
            effect=f"the steps of {steps[0].optimizer_name} diverge: losses grew to "
            f"{values[-1]:.1e} before one was not finite",
            weight=weight("NaN", _HEALED),
            explanation=[
                "Losses of this line, in the order of the steps: "
                + ", ".join(f"{value:.1e}" for value in values[-_SHOWN:]),
                line,
                "The optimizer that stepped in between is made here:" if len(made) == 1 else "",
                place if len(made) == 1 else None,
                step,
                "No operand that was read is at a singular point: parameters overflowed.",
            ],
            confidence="hint",
            parameters=tuple(sorted(bad)),
            events=(read[-1].seq, steps[0].seq),
            victim=step if step != place else line,
            fix="# a smaller learning rate, clip_grad_norm_ before the step, or normalized inputs",
        )
    return None


def _finite_because_of_loss(graph: CausalGraph) -> set[int]:
    """Return the ops whose results are finite because a loss is: every entry is added to it.

    Where such an op and its derivative are infinite at the same operands, both were finite.
    """
    waiting = [
        graph.op_of_node[node]
        for event in graph.analysis.log.of(LossRead)
        if event.loss is not None and (started := graph.backwards.get(event.backward_id))
        for node in started.root_ids or ()
        if node in graph.op_of_node
    ]
    found = set(waiting)
    while waiting:
        index = waiting.pop()
        if graph.op_names[index] not in _KEEPS_NOT_FINITE:
            continue
        given = zip(graph.producers(index), graph.views(index), strict=True)
        for position, (made, view) in enumerate(given):
            whole = view == NO_OP or graph.op_names[view] in _WHOLE_VIEWS
            is_divisor = graph.op_names[index] == "div" and position > 0
            if made != NO_OP and made not in found and whole and not is_divisor:
                found.add(made)
                waiting.append(made)
    return found


def _healed(graph: CausalGraph, good: set[int]) -> Iterator[Fact]:
    """Yield a fact for each line that computes what a later line replaces where it is NaN.

    The loss is finite then, and the gradient is not: the derivative of what was replaced is
    multiplied by zero, and zero times NaN is NaN.
    """
    blocked = {node for node, leaf in graph.leaves.items() if leaf in good}
    found: dict[SourceLocation, tuple[int, int]] = {}
    for index in graph.slice_ops:
        chosen = _chosen_where_finite(graph, index)
        made = [m for at in chosen if (m := graph.producers(index)[at]) in graph.node_of_op]
        if not made or not blocked.isdisjoint(graph.reachable([graph.node_of_op[made[0]]])):
            continue
        place = graph.analysis.location(graph.stacks[made[0]])
        if place is not None and graph.analysis.user_stack(graph.stacks[made[0]]):
            found.setdefault(place, (made[0], index))
    for place, (made_at, index) in found.items():
        name, healer = graph.op_names[made_at], graph.op_names[index]
        behind = graph.parameters_behind(index)
        used = graph.analysis.location(graph.stacks[index])
        yield Fact(
            mechanism="value",
            culprit=place,
            effect=f"{healer} keeps NaN of {name} out of the loss, not out of the gradient",
            weight=weight("NaN", _HEALED),
            explanation=[
                "The loss is finite, and gradients are not. A value is computed here:",
                place,
                f"and {healer} replaces it where it is not finite:" if used != place else "",
                used if used != place else None,
                f"The gradient of {healer} is 0 there. The derivative of {name} multiplies it by "
                "what is not finite, and 0 times NaN is NaN.",
                "record(fingerprints=True) records which op gave the first such value.",
            ],
            confidence="hint",
            parameters=tuple(sorted(behind)),
            share=graph.share(behind),
            events=(graph.op_seqs[made_at], graph.op_seqs[index]),
            victim=used if used != place else None,
            fix=f"# choose the input of {name}, not only its result:\n"
            + (
                safe_input(place, name, used)
                or f"torch.where(mask, {name}(torch.where(mask, x, safe)), y)"
            ),
        )


def _chosen_where_finite(graph: CausalGraph, index: int) -> tuple[int, ...]:
    """Return the inputs that an op replaces where they, or what is compared, are NaN."""
    name = graph.op_names[index]
    if name == "nan_to_num":
        return (0,)
    if name not in _CHOOSING:
        return ()
    condition, chosen = _CHOOSING[name]
    at = graph.producers(index)[condition] if len(graph.inputs[index]) > condition else NO_OP
    while at != NO_OP and graph.op_names[at] in {"bitwise_not", "logical_not"}:
        at = graph.producers(at)[0]
    if at == NO_OP:
        return ()
    given = graph.inputs[at]
    tests = graph.op_names[at] == "isnan" or (
        graph.op_names[at] in {"ne", "eq"} and len(given) == _PAIR and given[0] == given[1]
    )
    return tuple(each for each in chosen if each < len(graph.inputs[index])) if tests else ()


def _carries_not_finite(graph: CausalGraph) -> set[int]:
    """Return the ops whose results can make a loss NaN or infinite.

    Comparisons and indices pass no such value on: their results are integers.
    """
    found = set(graph.slice_ops)
    waiting = list(found)
    while waiting:
        index = waiting.pop()
        producers = graph.producers(index)
        for position in graph.value_inputs(index):
            made = producers[position]
            if made in found or made == NO_OP:
                continue
            if graph.inputs[index][position] in graph.differentiable:
                found.add(made)
                waiting.append(made)
    return found & graph.value_slice


def _infinite_masks(graph: CausalGraph, evidence: Evidence) -> Iterator[Fact]:
    """Yield a fact for each line that multiplies a mask by infinity: 0 times infinity is NaN."""
    ranges = ranges_of(evidence)
    found: dict[SourceLocation, int] = {}
    for index, name in enumerate(graph.op_names):
        if name not in _FACTORS or graph.phases[index] != "forward" or graph.failed[index]:
            continue
        is_infinite = any(map(math.isinf, ranges.numbers(index).values()))
        if is_infinite and graph.is_users(index) and _is_mask(graph, index):
            place = graph.analysis.location(graph.stacks[index])
            if place is not None:
                found.setdefault(place, index)
    for place, index in found.items():
        behind = graph.parameters_behind(index)
        yield Fact(
            slug="not-finite",
            mechanism="value",
            culprit=place,
            effect="a mask is multiplied by infinity: where it is 0, the result is NaN",
            weight=weight("mask times infinity"),
            explanation=[
                "The result of a comparison is multiplied by infinity:",
                place,
                "0 times infinity is NaN, and not 0.",
            ],
            parameters=tuple(sorted(behind)),
            share=graph.share(behind),
            events=(graph.op_seqs[index],),
            fix='scores.masked_fill(mask, float("-inf"))',
        )


def _is_mask(graph: CausalGraph, index: int) -> bool:
    """Return whether the only input of an op is 0 or 1: a comparison, or a copy of one."""
    for _ in range(_ADDS_MASK):
        if len(graph.inputs[index]) != 1:
            return False
        if graph.analysis.tensors[graph.inputs[index][0]].dtype == "bool":
            return True
        index = graph.producers(index)[0]
        if index == NO_OP or graph.op_names[index] not in {"_to_copy", "rsub"}:
            return False
    return False


def _is_difference(graph: CausalGraph, index: int) -> bool:
    """Return whether the operand of an op is a difference, or its product with something.

    It is exactly 0 wherever both are equal.
    """
    at = graph.producers(index)[-1] if graph.inputs[index] else NO_OP
    for _ in range(_ADDS_MASK):
        if at == NO_OP or graph.op_names[at] not in {"div", "mul", "abs", "pow"}:
            break
        at = graph.producers(at)[0]
    return at != NO_OP and graph.op_names[at] == "sub"


def _stayed_small(losses: Sequence[LossRead]) -> bool:
    """Return whether the finite losses that were read are far from an overflow."""
    return all(event.loss is None or abs(event.loss) < _LARGE for event in losses)


def _where_it_arose(graph: CausalGraph, *, in_forward: bool) -> str:
    """Return the sentence that says whether forward or backward gave the first such value."""
    if not in_forward:
        if any(event.loss is None for event in graph.analysis.log.of(LossRead)):
            return (
                "The first loss that was read was finite, a later one was not: a backward, an "
                "optimizer step, or a later forward gave the first such value."
            )
        return "The first loss that was read was finite: backward, or the step, gave it."
    if not graph.analysis.steps.is_complete:
        return (
            "The loss of the first step that was kept is not finite. Earlier steps were dropped: "
            "the first such value may be from one of them, also from its backward."
        )
    return "The loss of the first step was not finite: the forward gave the first one."


class _Shown:
    """Facts about results that follow from shapes, numbers and the ranges of operands."""

    def __init__(self, graph: CausalGraph, evidence: Evidence) -> None:
        self._graph = graph
        self._ranges = ranges_of(evidence)

    def _reduced(self, index: int) -> int | None:
        """Return the number of input elements that an op reduces to each of its result."""
        tensors, graph = self._graph.analysis.tensors, self._graph
        if not graph.inputs[index] or not graph.outputs[index]:
            return None
        given, made = (
            prod(tensors[each].shape) for each in (graph.inputs[index][0], graph.outputs[index][0])
        )
        return given // made if made else None

    def is_nan(self, index: int) -> bool:
        """Return whether a result is NaN whatever the values are: its op needs more elements."""
        name = self._graph.op_names[index]
        if name not in _SPREADS and name not in MEANS:
            return False
        numbers, count = self._ranges.numbers(index), self._reduced(index)
        if name in MEANS:
            return count == 0 and numbers.get("reduction", 1) == 1
        return count is not None and count <= numbers.get("correction", 1)

    def why(self, index: int) -> str:
        """Return the reason for which a result is NaN whatever the values are."""
        name, count = self._graph.op_names[index], self._reduced(index)
        if name in MEANS:
            return "it is a mean of no element"
        return f"of {plural(count or 0, 'element')} it divides by 0; correction=0 divides by 1"

    def is_harmless(self, index: int) -> bool:
        """Return whether its operand keeps an op from where it or its derivative is singular."""
        graph, name = self._graph, self._graph.op_names[index]
        numbers = self._ranges.numbers(index)
        if name == "_softmax":
            return self.masked(index) is None
        if name == "div" and len(graph.inputs[index]) == 1:
            return numbers.get("other", 0) != 0
        exponent = numbers.get("exponent", 0.5) if name == "pow" else 0.5
        if exponent == int(exponent) and exponent > 0:
            return True
        if not graph.inputs[index]:
            return False
        low, high = self._ranges.of_input(index, len(graph.inputs[index]) - 1)
        if name == "exp":
            return high <= _EXP_OVERFLOWS
        return low > _SAFE_ABOVE.get(name, inf)

    def masked(self, index: int) -> int | None:
        """Return the op that put a number which is minus infinity into an op's input, if any."""
        graph, at = self._graph, [index]
        for _ in range(_ADDS_MASK):
            at = [
                made
                for each in at
                for made in graph.producers(each)
                if made != NO_OP and graph.op_names[made] not in _PRODUCTS
            ]
            found = (each for each in at if -inf in self._ranges.numbers(each).values())
            if (first := next(found, None)) is not None:
                return first
        return None


def _candidates(graph: CausalGraph, shown: _Shown, good: set[int], ops: Iterable[int]) -> list[int]:
    """Return the ops that may have given it: those whose nodes lead to no finite gradient.

    Of a value that is not finite in the forward, gradients of everything before are not finite too.

    Args:
        graph: the graph.
        shown: what shapes and ranges say about them.
        good: the leaves whose gradients are finite.
        ops: the ops to choose from. In the forward, also one without a node may give it.
    """
    blocked = {node for node, tensor in graph.leaves.items() if tensor in good}
    users: dict[int, list[int]] = {}
    for node, targets in graph.next_nodes.items():
        for target in targets:
            users.setdefault(target, []).append(node)
    waiting = list(blocked)
    while waiting:
        for node in users.get(waiting.pop(), ()):
            if node not in blocked:
                blocked.add(node)
                waiting.append(node)
    dangerous = _SINGULAR.keys() | _OVERFLOWING
    ops = [i for i in ops if graph.phases[i] == "forward" and graph.op_names[i] in dangerous]
    ops = [index for index in ops if not shown.is_harmless(index)]
    return [index for index in ops if graph.node_of_op.get(index) not in blocked] or [
        index for index in ops if graph.op_names[index] in _SINGULAR
    ]


def _danger(
    graph: CausalGraph,
    shown: _Shown,
    ops: list[int],
    place: SourceLocation,
    in_forward: bool,  # noqa: FBT001
) -> float:
    """Return the rank of a line as the origin, from what its ops and the numbers in it can do."""
    constants = _Constants(place)
    names = {
        graph.op_names[index]
        for index in ops
        if not (graph.op_names[index] == "div" and len(graph.inputs[index]) == 1)
        if not shown.is_harmless(index)
    }
    by_value, by_derivative = names & _VALUE.keys(), names & _DERIVATIVE.keys()
    rank = 2.0 if by_value or (by_derivative and not in_forward) else 1.0 if by_derivative else 0.0
    if rank and constants.small_term:
        rank -= 1.5  # a guard: the argument stays away from 0
    if rank and in_forward:
        singular = (index for index in ops if graph.op_names[index] in _SINGULAR)
        rank += 0.2 * any(_is_difference(graph, index) for index in singular)
    rank += (3.0 if in_forward else 2.5) * constants.large_factor + 1.0 * constants.zero_factor
    return rank + 0.5 * any(graph.is_users(index) for index in ops)


class _Constants:
    """Properties of a statement that its numbers show."""

    def __init__(self, place: SourceLocation) -> None:
        self.large_factor = self.zero_factor = self.small_term = False
        for statement in source.simple_statements(place):
            for node in ast.walk(statement):
                if isinstance(node, ast.BinOp):
                    self._read(node.op, node.left)
                    self._read(node.op, node.right)
                elif isinstance(node, ast.Call):
                    self.small_term |= getattr(node.func, "attr", "").startswith("clamp")
                elif isinstance(node, ast.keyword):
                    self.small_term |= node.arg in {"eps", "min"}

    def _read(self, op: ast.operator, side: ast.expr) -> None:
        value = getattr(side, "value", None) if isinstance(side, ast.Constant) else None
        if not isinstance(value, int | float):
            return
        if isinstance(op, ast.Mult | ast.Div):
            size = abs(value)
            self.large_factor |= size >= _LARGE or 0 < size <= 1 / _LARGE
            self.zero_factor |= size == 0
        elif isinstance(op, ast.Add):
            self.small_term |= value > 0


# --- constants that are so large that a sum with them keeps few digits of the other operand -------


_SUMS: Final = frozenset({"add", "sub", "rsub", "add_", "sub_"})
_LEAST_CONSTANT: Final = 1e4
_LEAST_STEP: Final = 2.0**-7  # between neighboring results; values of networks are about 1


def find_lost_precision(graph: CausalGraph) -> Iterator[Fact]:
    """Yield a fact for each line that adds a large number to what a loss is computed from."""
    groups: dict[SourceLocation, list[int]] = defaultdict(list)
    for index in graph.slice_ops:
        if graph.op_names[index] in _SUMS and len(graph.inputs[index]) == 1:
            place = graph.analysis.location(graph.stacks[index])
            if place is not None and graph.is_users(index):
                groups[place].append(index)
    for place, ops in groups.items():
        dtype = graph.analysis.tensors[graph.inputs[ops[0]][0]].dtype
        largest = max(map(abs, _added_numbers(place)), default=0.0)
        if largest < _LEAST_CONSTANT or dtype not in SIGNIFICAND_BITS:
            continue
        step = 2.0 ** (math.floor(math.log2(largest)) - SIGNIFICAND_BITS[dtype])
        if step >= _LEAST_STEP:
            yield _precision_fact(graph, place, ops, f"{largest:,g}", f"{step:g}", dtype)


def _precision_fact(
    graph: CausalGraph,
    place: SourceLocation,
    ops: list[int],
    number: str,
    step: str,
    dtype: str,
) -> Fact:
    behind = graph.parameters_behind(*ops)
    share = graph.share(behind)
    return Fact(
        mechanism="value",
        culprit=place,
        effect=f"a sum with {number} rounds {dtype} values to multiples of {step}, "
        f"{plural(len(ops), 'time')}; {plural(len(behind), 'parameter')} ({percent(share)} of the "
        "elements) are behind it",
        weight=weight("rounded sum", share),
        explanation=[
            "A large number is added to a value that the loss is computed from:",
            place,
            f"Next to {number}, neighboring numbers of {dtype} are {step} apart: smaller "
            "differences are lost, also if the number is subtracted again.",
        ],
        parameters=tuple(sorted(behind)),
        share=share,
        events=(graph.op_seqs[ops[0]],),
        slug="precision-lost",
        fix="# leave the large number out, or compute this line in float64",
    )


def _added_numbers(place: SourceLocation) -> Iterator[float]:
    """Yield the finite numbers that the statement of a line adds or subtracts."""
    for statement in source.simple_statements(place):
        for node in ast.walk(statement):
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
                yield from filter(None, map(_number, (node.left, node.right)))
            elif isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add | ast.Sub):
                yield from filter(None, [_number(node.value)])


def _number(node: ast.expr) -> float | None:
    inner = node.operand if isinstance(node, ast.UnaryOp) else node
    value = getattr(inner, "value", None) if isinstance(inner, ast.Constant) else None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and abs(value) < math.inf else None  # type: ignore[arg-type]


# --- unused results -------------------------------------------------------------------------------
#
# Statements whose result nothing reads: an operator that was meant to be in place, or assigned.


_CALLED: Final = {
    "_to_copy": frozenset(
        {"to", "cuda", "cpu", "float", "double", "half", "bfloat16", "type", "type_as"}
    ),
    "clone": frozenset({"clone", "contiguous"}),
    "clamp": frozenset({"clamp", "clip"}),
    "view": frozenset({"view", "reshape"}),
    "_unsafe_view": frozenset({"reshape"}),
    "div": frozenset({"div", "divide", "true_divide"}),
    "mul": frozenset({"mul", "multiply"}),
    "sub": frozenset({"sub", "subtract"}),
}
"""The names of the functions that call an operator, if they are others than its own."""


def find_unused_results(graph: CausalGraph) -> Iterator[Fact]:
    """Yield a fact for each statement that calls an operator and drops the tensor it returns."""
    groups: dict[SourceLocation, list[int]] = defaultdict(list)
    for index in _unread(graph):
        place = graph.analysis.location(graph.stacks[index])
        if place is not None and graph.is_users(index):
            groups[place].append(index)
    for place, ops in groups.items():
        call = _dropped_call(place)
        if call is None or place.filename in graph.analysis.cells:  # a notebook shows it
            continue
        called = source.last_name(call.func)
        found = [at for at in ops if called in _names_of_calls(graph.op_names[at])]
        if found:
            yield _unused_fact(graph, place, found, call)


def _unread(graph: CausalGraph) -> list[int]:
    """Return the ops that write nothing and whose results no other op reads, writes or views."""
    used: dict[int, int] = {}  # how many ops have each tensor as input or output
    for given, made in zip(graph.inputs, graph.outputs, strict=True):
        for tensor_id in {*given, *made}:
            used[tensor_id] = used.get(tensor_id, 0) + 1
    return [
        index
        for index, made in enumerate(graph.outputs)
        if made
        and graph.inputs[index]
        and not graph.written[index]
        and not graph.failed[index]
        and graph.phases[index] == "forward"
        and all(used[each] == 1 for each in made)
    ]


def _names_of_calls(op: str) -> frozenset[str]:
    return _CALLED.get(op, frozenset({op}))


def _dropped_call(place: SourceLocation) -> ast.Call | None:
    """Return the call that is the whole statement of a line, None if its value goes elsewhere."""
    statements = source.simple_statements(place)
    if len(statements) != 1 or not isinstance(statements[0], ast.Expr):
        return None
    call = statements[0].value
    return call if isinstance(call, ast.Call) else None


def _unused_fact(graph: CausalGraph, place: SourceLocation, ops: list[int], call: ast.Call) -> Fact:
    result = graph.analysis.tensors[graph.outputs[ops[0]][0]]
    behind = graph.parameters_behind(ops[0])
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    is_method = owner is not None and ast.unparse(owner) != "torch"
    target = owner if is_method else next(iter(call.args), None)
    return Fact(
        slug="result-discarded",
        mechanism="drop",
        culprit=place,
        effect=f"the result of {source.last_name(call.func)}() ({describe_tensor(result)}) is "
        f"dropped, {plural(len(ops), 'time')}",
        weight=weight("dropped result"),
        explanation=[
            "This statement calls an operator that returns a new tensor:",
            place,
            "Nothing reads the new tensor, and the old one has not changed.",
        ],
        parameters=tuple(sorted(behind)),
        share=graph.share(behind),
        events=tuple(graph.op_seqs[each] for each in ops[:2]),
        fix=assigned(target, call),
    )
