"""The slope of a forward along a direction, from its values, with the error that it may have.

NOTE [ The error of a slope ]
The forward is evaluated at nine points of a line, and a polynomial of degree 4 is fitted. Its
linear coefficient is the slope. Its residuals contain what no polynomial explains: rounding, in
whatever dtype the forward computes inside, and kinks. A kink moves the slope by at most 15 times
the largest residual, wherever it is, so 16 times the residual is a bound. For rounding 8 times are
enough: it moves the slope by 1.35 times its standard deviation. Two things escape: rounding so
coarse that the forward is constant between the points, and rounding that is the same at all
points. The dtypes of the operators that the forward calls, and those in which its outputs can be
written exactly, bound these.

The points are rounded to the narrowest dtype, and compared are the differences of the forward with
the gradient times the differences of these points, so that rounding of inputs does not count.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import torch

from autogradviz.support.dtype_precision import EPSILON

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

EPS: Final = {
    dtype: EPSILON[str(dtype).removeprefix("torch.")]
    for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16)
}
STEPS: Final = {
    torch.float64: (1e-3, 1e-5), torch.float32: (1e-2, 1e-3, 1e-4),
    torch.float16: (0.5, 0.1, 0.02), torch.bfloat16: (0.8, 0.3, 0.1),
}  # fmt: skip
"""The largest changes of the inputs that are tried, relative to their size."""
SMALLEST: Final = {
    torch.float64: 1e-5, torch.float32: 1e-3, torch.float16: 1e-2, torch.bfloat16: 3e-2,
}  # fmt: skip
"""A relative difference that is never called wrong, whatever the residuals."""

_PLACES: Final = torch.linspace(-1, 1, 9, dtype=torch.float64)
_POWERS: Final = torch.stack([_PLACES**power for power in range(5)], 1)
_FIT: Final = torch.linalg.pinv(_POWERS)
_REST: Final = torch.eye(9, dtype=torch.float64) - _POWERS @ _FIT
_FROM_RESIDUAL: Final = 16.0
_FROM_ROUNDING: Final = 8.0
_LIKE_ROUNDING: Final = 3.0
"""Rounding to nearest has a standard deviation of 0.3 of the distance between two numbers."""
_KINK: Final = 10.0
"""A residual that is so many times as large as rounding is no rounding."""


def narrowest(dtypes: set[torch.dtype]) -> torch.dtype:
    """Return the dtype with the coarsest rounding."""
    return max((EPS[each], each) for each in dtypes if each in EPS)[1] if dtypes else torch.float64


def flat(tensor: torch.Tensor) -> torch.Tensor:
    """Return the real numbers in a tensor, as float64 on the CPU."""
    tensor = tensor.detach()
    tensor = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
    return tensor.reshape(-1).to("cpu", torch.float64)


@dataclass(frozen=True, slots=True)
class Line:
    """The outputs of a forward at the points of a line.

    Attributes:
        step: the largest change of an input, relative to its size.
        dtype: the narrowest on the way, which rounds.
        moves: the changes of the input, a row for each point.
        values: the outputs, a row for each point.
    """

    step: float
    dtype: torch.dtype
    moves: torch.Tensor
    values: torch.Tensor

    def smooth(self) -> torch.Tensor:
        """Return a mask of the outputs that are smooth along the line, up to rounding."""
        residual = (_REST @ self.values).abs().amax(0)
        rounding = EPS[self.dtype] * self.values.abs().amax(0)
        change = (_FIT[1] @ self.values).abs()
        found: torch.Tensor = residual <= _KINK * rounding + max(1e-6, EPS[self.dtype]) * change
        found &= self.values.isfinite().all(0)
        return found


@dataclass(frozen=True, slots=True)
class Slopes:
    """Two slopes along a line: that of the gradient, and that of the forward.

    Attributes:
        incoming: "random" or "uniform": the incoming gradient.
        step: the largest change of an input, relative to its size.
        gradient: the slope that the gradient predicts.
        forward: the slope that the values of the forward have.
        bound: the difference that rounding, kinks and the step can explain.
        scale: the size of the slopes, if no sum cancels.
    """

    incoming: str
    step: float
    gradient: float
    forward: float
    bound: float
    scale: float

    @property
    def differ(self) -> bool:
        """Whether the slopes differ by more than the bound."""
        return abs(self.gradient - self.forward) > self.bound

    @property
    def is_sharp(self) -> bool:
        """Whether the bound is small enough to call the gradient right."""
        return self.bound <= _SHARP * self.scale

    def __str__(self) -> str:
        return (
            f"with a {self.incoming} incoming gradient, its gradient predicts a slope of "
            f"{self.gradient:.4g}, and differences of the forward give {self.forward:.4g}; "
            f"rounding explains {self.bound:.1g}"
        )


_SHARP: Final = 0.15


def sample(
    forward: Callable[[torch.Tensor], torch.Tensor],
    point: torch.Tensor,
    direction: torch.Tensor,
    step: float,
    dtype: torch.dtype,
) -> Line:
    """Evaluate a forward at the points of a line.

    Args:
        forward: takes a flat input in float64, and returns its flat outputs.
        point: the middle of the line, in float64.
        direction: the change of each entry for a relative change of 1.
        step: the largest relative change.
        dtype: the points are rounded to it.
    """
    moves, values = [], []
    for place in _PLACES.tolist():
        moved = (point + place * step * direction).to(dtype).double()
        moves.append(moved - point)
        values.append(forward(moved))
    return Line(step, dtype, torch.stack(moves), torch.stack(values))


def compare(
    incoming: str,
    line: Line,
    weights: torch.Tensor,
    gradient: torch.Tensor,
    noise: torch.Tensor,
) -> Slopes:
    """Compare the slope of a weighted sum of outputs with the one that a gradient predicts.

    Args:
        incoming: the name of the incoming gradient.
        line: the outputs.
        weights: of the outputs: their incoming gradients.
        gradient: of the input, for these weights.
        noise: an estimate of the rounding of each entry of the gradient.
    """
    eps = EPS[line.dtype]
    used = weights != 0
    values = line.values[:, used] - line.values[4, used]
    weights = weights[used]
    sums, predicted = values @ weights, line.moves @ gradient
    fit = _FIT[1]
    change = fit @ line.moves  # of each input, for the whole step
    rounded = eps * line.values[:, used].abs().amax(0)
    residual = (_REST @ values).abs().amax(0)
    rounding = float(torch.linalg.vector_norm(weights * rounded))
    kinks = float((weights.abs() * (residual - rounded).clamp(min=0)).sum())
    rest = float((_REST @ (sums - predicted)).abs().max())
    random = float(torch.linalg.vector_norm(weights * torch.minimum(residual, rounded)))
    slopes = weights * (fit @ values)
    scale = max(
        float(torch.linalg.vector_norm(slopes)),
        float(torch.linalg.vector_norm(gradient * change)),
        abs(float(fit @ sums)),
        abs(float(fit @ predicted)),
    )
    bound = (
        _FROM_RESIDUAL * max(kinks, rest - _LIKE_ROUNDING * rounding)
        + max(_FROM_ROUNDING * random, _LIKE_ROUNDING * rounding)
        + 3 * float(torch.linalg.vector_norm(noise * change))
        + 2 * eps * float((gradient * change).abs().sum())
        + SMALLEST[line.dtype] * scale
    )
    if not scale:  # nothing changes, and no change is predicted
        scale = 1e-3 * float(torch.linalg.vector_norm(weights * line.values[4, used])) or 1.0
    return Slopes(
        incoming,
        line.step,
        float(fit @ predicted) / line.step,
        float(fit @ sums) / line.step,
        bound / line.step,
        scale / line.step,
    )


def off_by(slopes: Sequence[Slopes]) -> tuple[float, float]:
    """Return the relative error of all slopes together, and the one that rounding can explain.

    A factor that is wrong by less than the rounding of each slope shows in their mean.
    """
    along = sum(each.gradient * each.forward for each in slopes)
    size = sum(each.gradient**2 for each in slopes)
    if not size:
        return 0.0, float("inf")
    noise = sum((each.gradient * each.bound) ** 2 for each in slopes) ** 0.5
    return along / size - 1, noise / size + _BIAS


_BIAS: Final = 0.02


def size_of(values: torch.Tensor) -> torch.Tensor:
    """Return by how much each entry of an input is changed for a relative change of 1."""
    typical = float(values.square().mean().sqrt()) or 1.0
    return values.abs().clamp(min=0.1 * typical)


def same(got: Sequence[torch.Tensor], want: Sequence[torch.Tensor], dtype: torch.dtype) -> float:
    """Return the relative difference of gradients if it is no rounding, else 0."""
    a, b = torch.cat([flat(each) for each in got]), torch.cat([flat(each) for each in want])
    if not bool(b.isfinite().all()):
        return 0.0
    if not bool(a.isfinite().all()):
        return float("inf")
    largest = float(max(torch.linalg.vector_norm(a), torch.linalg.vector_norm(b)))
    error = float(torch.linalg.vector_norm(a - b)) / largest if largest else 0.0
    return error if error > _REPEATED[dtype] else 0.0


_REPEATED: Final = {
    torch.float64: 1e-8, torch.float32: 1e-3, torch.float16: 2e-2, torch.bfloat16: 6e-2,
}  # fmt: skip
"""The relative difference that two gradients have which should be the same."""
