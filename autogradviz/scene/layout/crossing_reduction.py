"""Crossing reduction: sweeps and swaps of ordered rows, kept only if they remove crossings."""

from __future__ import annotations

from bisect import bisect_right, insort
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ROUNDS: Final = 24
SWAPS: Final = 10
LARGE: Final = 4_000
"""Number of cells from which on there are only swaps of neighbors, no sweeps."""


def reduce_crossings(
    rows: list[list[int]],
    above: Sequence[Sequence[int]],
    below: Sequence[Sequence[int]],
    solid: int,
) -> None:
    """Reorder the cells of each row so that fewer lines cross.

    An order without crossings is kept. So is a single column of boxes with lanes next to it, which
    is easier to read than an order with fewer crossings.

    Args:
        rows: cells from left to right, top row first; sorted in place.
        above: for each cell, the linked cells in the row above.
        below: for each cell, the linked cells in the row below.
        solid: number of cells that are not bends; the indices of bends follow.
    """
    if all(sum(cell < solid for cell in row) < 2 for row in rows):  # noqa: PLR2004  a column
        return
    at = [0] * len(above)
    _number(rows, at)
    wide = [row for row in rows if len(row) > 1]
    best = _count(rows, below, at)
    if not best:
        return
    kept = [list(row) for row in wide]
    for turn in range(ROUNDS if sum(map(len, rows)) <= LARGE else 0):
        down = turn % 2 == 0
        middle = _mean if turn % 4 < 2 else _median  # noqa: PLR2004  each one down and up
        for row in wide if down else reversed(wide):
            _sort(row, above if down else below, at, middle)
        _swap(wide, above, below, at, least=turn // 2 % 2)
        count = _count(rows, below, at)
        if count < best:
            best, kept = count, [list(row) for row in wide]
    for row, order in zip(wide, kept, strict=True):
        row[:] = order
    _number(rows, at)
    _swap(wide, above, below, at, least=1)


def _number(rows: list[list[int]], at: list[int]) -> None:
    for row in rows:
        for place, cell in enumerate(row):
            at[cell] = place


def _sort(
    row: list[int],
    neighbors: Sequence[Sequence[int]],
    at: list[int],
    middle: Callable[[list[int]], float],
) -> None:
    keys = {
        c: middle([at[other] for other in neighbors[c]]) if neighbors[c] else at[c] for c in row
    }
    row.sort(key=keys.__getitem__)
    for place, cell in enumerate(row):
        at[cell] = place


def _mean(places: list[int]) -> float:
    return sum(places) / len(places)


def _median(places: list[int]) -> float:
    places.sort()
    half = len(places) // 2
    return places[half] if len(places) % 2 else (places[half - 1] + places[half]) / 2


def _swap(
    wide: list[list[int]],
    above: Sequence[Sequence[int]],
    below: Sequence[Sequence[int]],
    at: list[int],
    *,
    least: int,
) -> None:
    """Swap neighbors if that removes at least ``least`` crossings."""
    for _ in range(SWAPS):
        swapped = False
        for row in wide:
            for left in range(len(row) - 1):
                a, b = row[left], row[left + 1]
                if _gain(above[a], above[b], at) + _gain(below[a], below[b], at) >= least:
                    row[left], row[left + 1] = b, a
                    at[a], at[b] = left + 1, left
                    swapped = True
        if not swapped:
            return


def _gain(of_left: Sequence[int], of_right: Sequence[int], at: list[int]) -> int:
    """Return the number of crossings that a swap of two neighbors removes."""
    gain = 0
    for a in of_left:
        for b in of_right:
            gain += (at[a] > at[b]) - (at[a] < at[b])
    return gain


def _count(rows: list[list[int]], below: Sequence[Sequence[int]], at: list[int]) -> int:
    """Return the number of crossings between adjacent rows."""
    total = 0
    for row in rows:
        seen: list[int] = []
        for cell in row:
            places = sorted(at[other] for other in below[cell])
            total += sum(len(seen) - bisect_right(seen, place) for place in places)
            for place in places:
                insort(seen, place)
    return total
