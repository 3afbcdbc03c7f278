"""Comparison of a tensor of one process with the parts of it that ranks hold.

NOTE [ Parts that add up ]
Each rank recorded the sum and the norm of the part of an output that it computed. However a tensor
is divided, the sums of its parts add up to the sum of the whole, and the squares of their norms to
the square of its norm. How it is divided is known for a ``DTensor``; of any other tensor it follows
from the sizes:

- All parts are as large as the whole, and equal: each rank computed the whole.
- The sizes add up to a multiple of the whole: the tensor is divided, and each entry is held
  as often as the multiple says. Sums and squares are divided by it.
- All parts are as large as the whole, and differ: each is a term of a sum or of a mean, such as the
  gradient of a weight from a part of the batch. Only sums are compared.

If each rank takes the mean of its part of the batch as its loss, gradients before the reduction are
larger than those of one process, by the number of parts. So a gradient of an activation may be
larger by a divisor of the number of ranks. The gradients that leaves are left with may not.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod, sqrt
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

Verdict: TypeAlias = Literal["equal", "differs", "unknown"]

_TOLERANCE: Final = 1e-3
_TOLERANCES: Final = {"float16": 3e-2, "bfloat16": 3e-2}
_SUMMED: Final = 10
"""Sums may differ by so many tolerated differences of the norm: terms cancel in them."""
_SAME: Final = 1e-5
"""Relative difference up to which ranks hold copies."""
_LISTED: Final = 4


class Content(NamedTuple):
    """The part of a tensor that one process holds."""

    entry_sum: float | None  # None if an entry is NaN or infinite
    norm: float | None
    shape: tuple[int, ...]  # of the part
    dtype: str
    placements: tuple[str, ...]  # of a DTensor, by mesh dimension
    mesh_shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """The number of entries."""
        return prod(self.shape)

    @property
    def is_partial(self) -> bool:
        """Whether the parts of the ranks are still to be added, or reduced in another way."""
        return any(each.startswith("Partial") for each in self.placements)


@dataclass(frozen=True, slots=True)
class _Whole:
    """The tensor of one process, and how close others have to be."""

    entry_sum: float
    norm: float
    limit: float  # relative
    scale: float  # its norm, or that of rounding if that is larger
    factors: Sequence[float]

    def has_sum(self, total: float) -> bool:
        """Return whether a sum is that of the tensor, but for a factor."""
        return any(self._near_sum(total / factor) for factor in self.factors)

    def matches(self, norm: float, total: float) -> bool:
        """Return whether norm and sum are those of the tensor, but for a factor of both."""
        return any(
            self._near_sum(total / factor) and self.is_near(norm / factor, self.norm)
            for factor in self.factors
        )

    def is_near(self, one: float, other: float) -> bool:
        """Return whether two norms count as equal."""
        return abs(one - other) <= self.limit * max(self.scale, abs(other))

    def _near_sum(self, total: float) -> bool:
        largest = abs(self.entry_sum) + _SUMMED * self.scale
        return abs(total - self.entry_sum) <= self.limit * largest


def compare_parts(
    whole: Content,
    parts: Sequence[Content],
    *,
    tolerance: float | None = None,
    factors: Sequence[float] = (1.0,),
    noise: float = 0.0,
    is_linear: bool = True,
) -> tuple[Verdict, str]:
    """Return whether the parts that ranks hold make up a tensor of one process.

    See NOTE [ Parts that add up ].

    Args:
        whole: the tensor of one process.
        parts: the part of each rank.
        tolerance: the relative difference up to which sums and norms count as equal.
        factors: numbers by which the parts may be larger.
        noise: norms below this one are not compared.
        is_linear: whether parts that differ may be the terms of a sum.

    Returns:
        The verdict, and a description of what the ranks hold together.
    """
    if whole.norm is None or whole.entry_sum is None:
        return "unknown", ""
    held = [(each.norm, each.entry_sum) for each in parts]
    known = [(norm, total) for norm, total in held if norm is not None and total is not None]
    if len(known) < len(parts):
        ranks = [str(rank) for rank, each in enumerate(parts) if each.norm is None]
        return "differs", f"NaN or infinite on rank {', '.join(ranks)}"
    limit = tolerance or max(_TOLERANCES.get(each.dtype, _TOLERANCE) for each in (whole, *parts))
    target = _Whole(whole.entry_sum, whole.norm, limit, max(whole.norm, noise / limit), factors)
    if parts[0].is_partial:
        return _compare_partial(target, parts[0], [total for _, total in known])
    copies = _copies(whole, parts)
    if copies == len(parts):
        return _compare_replicas(target, whole, parts[0], known, is_linear=is_linear)
    if copies is None:
        return "unknown", ""
    norm = sqrt(sum(norm * norm for norm, _ in known) / copies)
    matching = target.matches(norm, sum(total for _, total in known) / copies)
    return _verdict(matching), f"norm {norm:.4g}"


def _verdict(matching: bool) -> Verdict:  # noqa: FBT001 - a condition
    return "equal" if matching else "differs"


def _compare_partial(target: _Whole, part: Content, sums: list[float]) -> tuple[Verdict, str]:
    """Compare a ``DTensor`` whose parts are terms: their norms say nothing."""
    kinds = [each for each in part.placements if each.startswith("Partial")]
    if any(each not in ("Partial(sum)", "Partial(avg)") for each in kinds):
        return "unknown", ""
    copies = prod(
        length
        for placement, length in zip(part.placements, part.mesh_shape, strict=True)
        if placement in ("Replicate()", "Partial(avg)")
    )
    meshes = len(sums) // max(prod(part.mesh_shape), 1)
    total = sum(sums) / (copies * max(meshes, 1))
    return _verdict(target.has_sum(total)), f"sum {total:.4g}"


def _compare_replicas(
    target: _Whole,
    whole: Content,
    part: Content,
    known: list[tuple[float, float]],
    *,
    is_linear: bool,
) -> tuple[Verdict, str]:
    """Compare parts that are as large as the whole: copies, or terms of a sum or mean."""
    if all(target.matches(*each) for each in known):
        return "equal", ""
    norm = known[0][0]
    sums = sum(total for _, total in known)
    closest = min(target.limit, _SAME)
    are_copies = all(
        abs(one - other) <= closest * max(abs(other), target.scale)
        for each in known
        for one, other in zip(each, known[0], strict=True)
    )
    if are_copies:
        # A number may be a count of what a rank has, which adds up.
        is_count = whole.size == 1 and target.has_sum(sums)
        return _verdict(is_count), f"norm {norm:.4g} on all ranks"
    is_number = whole.size == 1
    if not part.placements and (is_linear or is_number):
        if target.has_sum(sums) or target.has_sum(sums / len(known)):
            return "equal", ""
        if not is_linear:
            return "unknown", ""
    listed = ", ".join(f"{norm:.4g}" for norm, _ in known[:_LISTED])
    return "differs", f"norms {listed}" + (", …" if len(known) > _LISTED else "")


def _copies(whole: Content, parts: Sequence[Content]) -> float | None:
    """Return the number of ranks that hold each entry, None if it is not a whole number."""
    held = sum(each.size for each in parts)
    if whole.size == 0 or held % whole.size:
        return None
    return held / whole.size
