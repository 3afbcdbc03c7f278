"""Losses, logarithms and comparisons that get values from a range that cannot be meant."""

from __future__ import annotations

from collections import defaultdict
from math import exp, inf
from typing import TYPE_CHECKING, Final, NamedTuple

from autogradviz.analysis.causal_graph import NO_OP
from autogradviz.analysis.formatting import percent, plural
from autogradviz.causes.order_of_facts import weight
from autogradviz.diagnose.fact import Fact
from autogradviz.diagnose.source.names_of_program_in_fixes import module_in_code
from autogradviz.diagnose.source.operands_changed_as_fixes import with_call_renamed, without_call

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import SourceLocation
    from autogradviz.analysis.causal_graph import CausalGraph
    from autogradviz.diagnose.evidence.evidence import Evidence
from autogradviz.causes.ranges_implied_by_ops import PAIR, Ranges, ranges_of

_NORMALIZING_MODULES: Final = frozenset({"Softmax", "Sigmoid"})
_NARROW: Final = 1.0  # logits that differ by no more give similar probabilities to all classes


class _Words(NamedTuple):
    slug: str
    situation: str  # of the table of weights
    effect: str
    explanation: tuple[str, ...]  # around the line of the fact and the other one
    fix: str
    other: SourceLocation | None = None
    of_other: str = "The loss:"


def find_impossible_values(graph: CausalGraph, evidence: Evidence) -> Iterator[Fact]:
    """Yield facts about losses that get other values than they take, and constant comparisons."""
    names = set(graph.op_names)
    if not (names & _CONSUMERS or names & _COMPARING):
        return
    ranges = ranges_of(evidence)
    groups: dict[tuple[SourceLocation, str], list[tuple[int, _Words]]] = defaultdict(list)
    varying: set[tuple[SourceLocation, str]] = set()  # lines whose op gets other values, too
    value_slice = graph.value_slice
    for index in sorted(value_slice):
        name = graph.op_names[index]
        if name not in _CONSUMERS and name not in _COMPARING:
            continue
        place = next(iter(graph.analysis.user_stack(graph.stacks[index])), None)
        if place is None:
            continue
        found = (
            _comparison(graph, ranges, index)
            if name in _COMPARING
            else _of_loss(graph, ranges, index, place)
        )
        if found is None:
            varying.add((place, name))
            continue
        named, words = found
        groups[named or place, name].append((index, words))
    for (place, name), found_there in groups.items():
        if (place, name) not in varying:
            yield _fact(graph, place, found_there)


_COMPARING: Final = frozenset({"lt", "le", "gt", "ge"})
_OF_LOGARITHMS: Final = frozenset({"nll_loss_forward", "nll_loss2d_forward", "sub"})
_CONSUMERS: Final = _OF_LOGARITHMS | {"_log_softmax", "binary_cross_entropy_with_logits"}


def _comparison(
    graph: CausalGraph, ranges: Ranges, index: int
) -> tuple[SourceLocation | None, _Words] | None:
    """Return words about a comparison with a number that has one result only."""
    number = ranges.numbers(index).get("other")
    if number is None or len(graph.inputs[index]) != 1 or not graph.is_users(index):
        return None
    low, high = ranges.of_input(index, 0)
    always = {
        "lt": high < number, "le": high <= number, "gt": low > number, "ge": low >= number,
    }[graph.op_names[index]]  # fmt: skip
    never = {
        "lt": low >= number, "le": low > number, "gt": high <= number, "ge": high < number,
    }[graph.op_names[index]]  # fmt: skip
    if not (always or never):
        return None
    return None, _Words(
        slug="result-constant",
        situation="constant comparison",
        effect=f"{graph.op_names[index]} with {number:g} is {'true' if always else 'false'} for "
        f"every element: {_range(low, high)}",
        explanation=(
            "This comparison has one result, whatever the values are:",
            f"By the op that made them, {_range(low, high)}.",
        ),
        fix="# compare what the values were computed from",
    )


def _range(low: float, high: float) -> str:
    if high == inf:
        return f"they are at least {low:g}"
    return f"they are at most {high:g}" if low == -inf else f"they are from {low:g} to {high:g}"


def _of_loss(
    graph: CausalGraph, ranges: Ranges, index: int, place: SourceLocation
) -> tuple[SourceLocation | None, _Words] | None:
    """Return words about a loss that takes logits or log-probabilities and gets other values."""
    name, position = graph.op_names[index], 0
    if name == "sub":  # of kl_div: xlogy(target, target) - target * input
        parts = graph.producers(index)
        is_divergence = (
            len(parts) == PAIR
            and NO_OP not in parts
            and [graph.op_names[each] for each in parts] == ["xlogy", "mul"]
            and len(graph.inputs[parts[1]]) == PAIR
        )
        if not is_divergence:
            return None
        index, position = parts[1], 1
    maker, (low, high) = graph.producers(index)[position], ranges.of_input(index, position)
    if maker == NO_OP or high == low:
        return None
    made = next(iter(graph.analysis.user_stack(graph.stacks[maker])), None)
    at = made if made != place else None
    if name in _OF_LOGARITHMS:
        return (None, _of_logarithms(name, low, high, at, place)) if low >= 0 else None
    limits = _limits(graph, ranges, index, low, high)
    if not limits:
        return None
    fix = _without_normalizing(graph, maker, made)
    return at, _of_logits(limits, low, high, place if at else None, fix)


def _without_normalizing(graph: CausalGraph, maker: int, made: SourceLocation | None) -> str | None:
    """Return a statement that computes the values before softmax or sigmoid."""
    analysis = graph.analysis
    op = analysis.op_at(graph.op_seqs[maker])
    module = None if op is None else analysis.module_by_name.get(op.module)
    if module is not None and module.type_name in _NORMALIZING_MODULES:
        name = module_in_code(analysis, module.name)
        return f"{name} = torch.nn.Identity()  # in place of {module.type_name}"
    return without_call(made, "softmax", "sigmoid")


def _of_logarithms(
    name: str, low: float, high: float, at: SourceLocation | None, loss: SourceLocation
) -> _Words:
    called = "kl_div" if name == "sub" else "nll_loss"
    return _Words(
        slug="loss-of-probabilities",
        situation="loss of probabilities",
        effect=f"{called} takes log-probabilities, which are never positive, and gets values "
        f"of at least {low:g}",
        explanation=(
            "This loss takes log-probabilities:",
            f"By the op that made them, {_range(low, high)}: its gradient is that of a linear "
            "function.",
        ),
        fix=with_call_renamed(at or loss, "softmax", "log_softmax")
        or "# give it log_softmax() instead of softmax(), or the logarithm",
        other=at,
        of_other="The values are made here:",
    )


def _of_logits(
    limits: str, low: float, high: float, loss: SourceLocation | None, fix: str | None
) -> _Words:
    return _Words(
        slug="loss-of-probabilities",
        situation="loss of probabilities",
        effect=f"a loss takes logits and gets values from {low:g} to {high:g}, which are {limits}",
        explanation=(
            "This line takes logits:"
            if loss is None
            else "This line makes values that are normalized already:",
            f"By the op that made them, {_range(low, high)}. The loss applies softmax or sigmoid "
            f"itself, so that they are {limits}.",
        ),
        fix=fix or "# give the loss the values from before softmax() or sigmoid()",
        other=loss,
    )


def _limits(graph: CausalGraph, ranges: Ranges, index: int, low: float, high: float) -> str:
    """Return the probabilities that logits can be in words, "" if their range is not narrow."""
    if graph.op_names[index] == "binary_cross_entropy_with_logits":
        least, most = 1 / (1 + exp(-low)), 1 / (1 + exp(-high))
        return f"probabilities from {least:.2g} to {most:.2g} only" if 0 <= low < high <= 1 else ""
    classes = _classes(graph, ranges, index)
    if high - low > _NARROW or classes is None or classes < PAIR:
        return ""
    most = 1 / (1 + (classes - 1) * exp(low - high))
    return f"probabilities of at most {most:.2g} for {classes} classes"


def _classes(graph: CausalGraph, ranges: Ranges, index: int) -> int | None:
    dim = ranges.numbers(index).get("dim")
    shape = graph.analysis.tensors[graph.outputs[index][0]].shape
    known = dim is not None and dim == int(dim) and -len(shape) <= dim < len(shape)
    return shape[int(dim)] if known else None  # type: ignore[arg-type]


def _fact(graph: CausalGraph, place: SourceLocation, found: list[tuple[int, _Words]]) -> Fact:
    _, words = found[0]
    behind = graph.parameters_behind(*(each for each, _ in found))
    share = graph.share(behind)
    return Fact(
        slug=words.slug,
        mechanism="change" if words.slug == "loss-of-probabilities" else "cut",
        culprit=place,
        effect=f"{words.effect}, {plural(len(found), 'time')}; {plural(len(behind), 'parameter')} "
        f"({percent(share)} of the elements) are behind it",
        weight=weight(words.situation, share),
        explanation=[
            words.explanation[0],
            place,
            *((words.of_other, words.other) if words.other is not None else ()),
            words.explanation[1],
        ],
        parameters=tuple(sorted(behind)),
        share=share,
        victim=words.other,
        events=tuple(graph.op_seqs[each] for each, _ in found[:2]),
        fix=words.fix,
    )
