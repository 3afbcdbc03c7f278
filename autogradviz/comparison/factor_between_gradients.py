"""The factor by which all gradients of two recordings differ, and the numbers that explain it."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite, log2, prod
from pathlib import PurePath
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from autogradviz.comparison.result import Difference
from autogradviz.events import (
    BackwardStarted,
    NormRead,
    RankSeen,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from autogradviz.analysis import Analysis
    from autogradviz.analysis.types import Op
    from autogradviz.comparison.rounding_of_gradients import Rounding

# A recording has the norms of gradients, and with ``record(norms=True)`` also the sums of their
# entries. If the norms of several parameters differ by the same factor, up to rounding, the loss or
# the gradients were probably scaled: by the number of ranks, of accumulated batches or of tokens,
# by a loss scale, by clipping. A number explains the factor if the recordings contain it: as a
# ratio of their sizes, or as a constant that an operator of only one of them has.


_SAME: Final = 2e-3
"""Two factors are the same up to this part of them, if the dtype is no coarser."""
_EXACT: Final = 2e-4
"""A factor is written as a whole number up to this part of it."""
_FRACTION: Final = 1.5
_ALL: Final = 0.9
"""The part of the parameters that differ which a factor must explain."""
_LEAST_LOSS_SCALE: Final = 2.0**8
_SCALING: Final = {
    "mul": "multiplication", "mul_": "multiplication", "_foreach_mul_": "multiplication",
    "div": "division", "div_": "division", "_foreach_div_": "division",
    "full": "constant tensor", "scalar_tensor": "constant tensor",
}  # fmt: skip
_AVERAGING: Final = ("mean", "nll_loss_forward", "nll_loss2d_forward", "mse_loss",
                     "binary_cross_entropy", "smooth_l1_loss", "huber_loss")  # fmt: skip
_REDUCED: Final = (*_AVERAGING, "sum")


@dataclass(frozen=True, slots=True)
class Factor:
    """A factor between the gradients of two recordings.

    Attributes:
        value: those of the second recording, divided by those of the first.
        names: the parameters that it explains.
        others: how many have gradients in both recordings and do not differ.
        with_sums: whether the sums of the entries have the factor too.
    """

    value: float
    names: frozenset[str]
    others: int
    with_sums: bool


def find_factor(
    norms: Mapping[str, tuple[float, float]],
    sums: Mapping[str, tuple[float, float]],
    rounding: Rounding,
) -> Factor | None:
    """Return the factor by which most gradients that differ do so, None if they do not share one.

    Args:
        norms: of each parameter, in both recordings.
        sums: of the entries of each gradient, as far as they are known.
        rounding: how far rounding may move norms.
    """
    usable = {n: pair for n, pair in norms.items() if min(pair) > 0 and all(map(isfinite, pair))}
    changed = {
        name: after / before
        for name, (before, after) in usable.items()
        if abs(after - before) > rounding.bound(max(before, after))
    }
    if not changed:
        return None
    value = median(changed.values())
    names = frozenset(
        name for name in changed
        if _agrees(usable[name], value, rounding)
    )  # fmt: skip
    known = [sums[name] for name in names if name in sums]
    with_sums = bool(known) and all(
        abs(after - value * before) <= _SAME * abs(after) + rounding.bound(usable_norm)
        for (before, after), usable_norm in zip(
            known, [max(usable[n]) for n in names if n in sums], strict=True
        )
    )
    if len(names) < _ALL * len(changed) or (len(changed) == 1 and not with_sums):
        return None
    if known and not with_sums:
        return None
    return Factor(value, names, len(usable) - len(changed), with_sums)


def _agrees(pair: tuple[float, float], value: float, rounding: Rounding) -> bool:
    before, after = pair[0] * value, pair[1]
    largest = max(before, after)
    return abs(after - before) <= max(_SAME * largest, rounding.roundoff * 8 * largest)


def factor_differences(factor: Factor, before: Analysis, after: Analysis) -> Iterator[Difference]:
    """Yield the factor, and the numbers in the recordings that explain it."""
    count = len(factor.names)
    rest = f"; {factor.others:,} others are equal" if factor.others else ""
    what = "norms and sums" if factor.with_sums else "norms"
    yield Difference(
        aspect="gradients",
        what=f"{what} of {count:,} {'gradient' if count == 1 else 'gradients'}{rest}",
        before="×1",
        after=f"×{_number(factor.value)}",
    )
    seen = []
    for what, old, new in _candidates(factor.value, before, after):
        if (what, old, new) not in seen:
            seen.append((what, old, new))
            yield Difference(
                aspect="gradients", what=f"may explain ×{_number(factor.value)}: {what}",
                before=old, after=new,
            )  # fmt: skip


def _number(value: float) -> str:
    """Return a factor with four digits; one below 1 also as a fraction, "0.125 = 1/8"."""
    inverse = 1 / value
    if inverse > _FRACTION and abs(inverse - round(inverse)) <= _EXACT * inverse:
        return f"{value:.4g} (1/{round(inverse):,})"
    if value > _FRACTION and abs(value - round(value)) <= _EXACT * value:
        return f"{value:,.0f}"
    return f"{value:.5g}"


def _candidates(value: float, before: Analysis, after: Analysis) -> Iterator[tuple[str, str, str]]:
    sizes = _sizes(before), _sizes(after)
    for what in dict.fromkeys((*sizes[0], *sizes[1])):
        old, new = (each.get(what, 1) for each in sizes)
        if old != new and (_same(new / old, value) or _same(old / new, value)):
            yield what, f"{old:,}", f"{new:,}"
        elif old == new and old > 1 and (_same(old, value) or _same(1 / old, value)):
            yield f"{what}, in both", f"{old:,}", f"{new:,}"
    reductions = _reduction(before), _reduction(after)
    if all(reductions) and reductions[0] != reductions[1]:
        yield "reduction of the loss", *reductions
    yield from _constants(value, before, after)
    yield from _clipping(before, after)
    yield from _losses(value, before, after)


def _same(value: float, other: float) -> bool:
    nearer = min(_SAME, abs(other - 1) / 10)  # than a factor of 1
    return abs(value - other) <= nearer * max(abs(value), abs(other))


def _sizes(analysis: Analysis) -> dict[str, int]:
    """Return the numbers by which programs scale losses and gradients."""
    log = analysis.log
    ranks = max((event.world_size for event in log.of(RankSeen)), default=1)
    backwards = sum(e.accumulate and e.parent_backward_id is None for e in log.of(BackwardStarted))
    steps = sum(bool(step.optimizers) for step in analysis.steps) or 1
    found = {"ranks": ranks}
    if backwards % steps == 0:
        found["backwards per step"] = backwards // steps
    else:
        found["backwards"] = backwards
    forward = [op for op in analysis.ops if op.phase == "forward"]
    losses = [
        op for op in forward if op.name in _AVERAGING and op.inputs and not op.outputs[0].shape
    ]
    for op in losses[-1:]:
        found["elements that the loss averages"] = _averaged(op)
    batches = [op.inputs[0].shape[0] for op in forward if op.inputs and len(op.inputs[0].shape) > 1]
    if batches:
        found["rows of the first batch"] = batches[0]
    whole = [t for op in forward for t in op.inputs if t.dtype in {"int64", "int32"} and t.shape]
    if whole:
        found["tokens"] = prod(max(whole, key=lambda t: prod(t.shape)).shape)
    return found


def _averaged(op: Op) -> int:
    shape = op.inputs[1].shape if op.name.startswith("nll") and len(op.inputs) > 1 else None
    return prod(op.inputs[0].shape if shape is None else shape)


def _constants(value: float, before: Analysis, after: Analysis) -> Iterator[tuple[str, str, str]]:
    """Yield the constants of operators that only one recording has, and that are the factor."""
    scaled = _scalings(before), _scalings(after)
    for number, other, is_after in ((scaled[1], scaled[0], True), (scaled[0], scaled[1], False)):
        for (operation, constant), place in number.items():
            if (operation, constant) in other:
                continue
            if _same(constant, value) or (constant and _same(1 / constant, value)):
                text = f"{constant:g} at {place}"
                yield operation, *(("none", text) if is_after else (text, "none"))


def _reduction(analysis: Analysis) -> str:
    """Return the reduction of the last loss, "mean" or "sum", "" if it is not known."""
    losses = [
        op for op in analysis.ops
        if op.phase == "forward" and op.name in _REDUCED and not op.outputs[0].shape
    ]  # fmt: skip
    if not losses:
        return ""
    if losses[-1].name in {"mean", "sum"}:
        return losses[-1].name
    known = analysis.arguments_of(losses[-1].seq)
    return {1: "mean", 2: "sum"}.get(known.get("reduction", 1), "")


def _scalings(analysis: Analysis) -> dict[tuple[str, float], str]:
    """Return the first line of each multiplication or division by a constant."""
    found: dict[tuple[str, float], str] = {}
    for op in analysis.ops:
        if op.name in _SCALING and op.backward_node_id is None:
            for constant in _numbers(analysis.arguments_of(op.seq)):
                operation = _SCALING[op.name]
                place = PurePath(str(op.location)).name if op.location else "an unknown line"
                found.setdefault((operation, constant), place)
    return found


def _numbers(arguments: dict[str, Any]) -> list[float]:
    values = arguments.values()
    return [float(v) for v in values if isinstance(v, (int, float)) and not isinstance(v, bool)]


def _clipping(before: Analysis, after: Analysis) -> Iterator[tuple[str, str, str]]:
    """Yield the line that clips gradients, if only one recording has one."""
    lines = [
        next(
            (PurePath(str(op.location)).name for op in analysis.ops
             if op.location is not None and "clip_grad_norm" in (op.location.text or "")),
            "",
        )
        for analysis in (before, after)
    ]  # fmt: skip
    if bool(lines[0]) != bool(lines[1]):
        yield "clipping of the norm", lines[0] or "none", lines[1] or "none"


def _losses(value: float, before: Analysis, after: Analysis) -> Iterator[tuple[str, str, str]]:
    """Yield the losses, if they differ by the factor, or not at all."""
    losses = [
        [event.norm for event in analysis.log.of(NormRead) if event.place == "root" and event.norm]
        for analysis in (before, after)
    ]
    if not all(losses):
        return
    old, new = (sum(each) / len(each) for each in losses)
    if _same(new / old, value):
        yield "the losses that backward starts from", f"{old:.4g}", f"{new:.4g}"
        exponent = log2(value) if value > 0 else 0.5
        if abs(exponent) >= log2(_LEAST_LOSS_SCALE) and abs(exponent - round(exponent)) < _SAME:
            yield "a loss scale, as it is a power of two", "none", f"2^{round(exponent)}"
    elif abs(old - new) <= _EXACT * old and abs(value - 1) > _SAME:
        yield (
            "the losses are equal, so gradients were scaled after them",
            f"{old:.4g}",
            f"{new:.4g}",
        )
