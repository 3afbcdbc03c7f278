"""The x of every cell of one group: straight columns, no overlaps.

NOTE: algorithm. All cells start at 0. Sweeps down and up the rows compute for each cell the
weighted median of its neighbors' x. The result is made feasible by isotonic regression: the
nearest positions, in the least-squares sense, that keep the order and distances of the row.
Nodes weigh so much more than bends that a bend never moves a column, and nodes on the longest
path weigh so much more than others that the main column stays straight. Finally the bends on the
outer sides become lanes: straight from end to end, and as near to the column as the widest row
along them allows.

``assets/viewer/layout/x_positions.js`` does the same computation in the same order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

CELL_GAP: Final = 12.0
"""Between the margins of neighboring cells, and between lanes."""

BEND_WEIGHT: Final = 1.0
NODE_WEIGHT: Final = 1000.0
MAIN_WEIGHT: Final = 1e9  # of cells on the longest path through the group
SWEEPS: Final = 7
FEW_SWEEPS: Final = 3
MANY_CELLS: Final = 10_000  # from this size on, few sweeps
LANE_SWEEPS: Final = 3

Neighbor: TypeAlias = tuple[int, float, float]
"""Another cell, the wanted distance to the right of it, and the weight of that distance."""


@dataclass(slots=True)
class Grid:
    """The cells of one group, in rows; the lists are by cell."""

    rows: Sequence[Sequence[int]]  # cell numbers, top to bottom, left to right
    bend: list[bool]
    weight: list[float]  # resistance of a cell to being moved by its row
    above: list[list[Neighbor]]  # neighbors in the row above
    below: list[list[Neighbor]]
    left: list[float]  # extent of a cell to the left of its axis
    right: list[float]
    x: list[float]  # of the axis


def set_x_positions(grid: Grid) -> None:
    """Set the x of the axis of every cell."""
    for row in grid.rows:
        if len(row) > 1:
            _settle(grid, row, [0.0] * len(row))
    for sweep in range(SWEEPS if len(grid.x) < MANY_CELLS else FEW_SWEEPS):
        if sweep % 2 == 0:
            for row in grid.rows:
                _settle_by(grid, row, grid.above)
        else:
            for row in reversed(grid.rows):
                _settle_by(grid, row, grid.below)
    if any(grid.bend):
        _straighten_lanes(grid)


def _settle_by(grid: Grid, row: Sequence[int], neighbors: list[list[Neighbor]]) -> None:
    """Move a row's cells as near as possible to their neighbors on one side."""
    if len(row) == 1:
        grid.x[row[0]] = _want(grid.x, neighbors[row[0]], row[0])
    else:
        _settle(grid, row, [_want(grid.x, neighbors[cell], cell) for cell in row])


def _want(x: list[float], neighbors: list[Neighbor], own: int) -> float:
    """Return the weighted median of the positions that the neighbors want for a cell."""
    if not neighbors:
        return x[own]
    if len(neighbors) == 1:
        cell, shift, _ = neighbors[0]
        return x[cell] + shift
    places = sorted((x[cell] + shift, weight) for cell, shift, weight in neighbors)
    rest = sum(weight for _, weight in places) / 2
    for i, (place, weight) in enumerate(places):
        rest -= weight
        if rest < 0:
            return place
        if rest == 0:
            return (place + places[i + 1][0]) / 2
    return x[own]


def _settle(grid: Grid, row: Sequence[int], want: list[float]) -> None:
    """Move a row's cells as near to the wanted positions as order and distances allow."""
    offset = 0.0
    offsets: list[float] = []
    sums: list[float] = []  # of each block: weighted wanted positions, weights, cells
    weights: list[float] = []
    counts: list[int] = []
    for i, cell in enumerate(row):
        if i:
            offset += grid.right[row[i - 1]] + CELL_GAP + grid.left[cell]
        offsets.append(offset)
        sums.append((want[i] - offset) * grid.weight[cell])
        weights.append(grid.weight[cell])
        counts.append(1)
        while len(sums) > 1 and sums[-2] / weights[-2] > sums[-1] / weights[-1]:
            last_sum, last_weight, last_count = sums.pop(), weights.pop(), counts.pop()
            sums[-1] += last_sum
            weights[-1] += last_weight
            counts[-1] += last_count
    i = 0
    for block, count in enumerate(counts):
        start = sums[block] / weights[block]
        for _ in range(count):
            grid.x[row[i]] = start + offsets[i]
            i += 1


def _straighten_lanes(grid: Grid) -> None:
    """Move the outer bends outwards until every lane is straight.

    A run is the bends of one row on one side, innermost first. Its limit is the nearest allowed
    position to the row's boxes.
    """
    lefts: list[tuple[float, list[int]]] = []
    rights: list[tuple[float, list[int]]] = []
    for row in grid.rows:
        solid = [i for i, cell in enumerate(row) if not grid.bend[cell]]
        first, last = row[solid[0]], row[solid[-1]]
        if solid[0] > 0:
            limit = grid.x[first] - grid.left[first] - CELL_GAP
            lefts.append((limit, list(row[: solid[0]])[::-1]))
        if solid[-1] < len(row) - 1:
            limit = grid.x[last] + grid.right[last] + CELL_GAP
            rights.append((limit, list(row[solid[-1] + 1 :])))
    for runs, side in ((lefts, -1.0), (rights, 1.0)):
        for limit, run in runs:
            for i, cell in enumerate(run):
                grid.x[cell] = limit + side * i * CELL_GAP
        for _ in range(LANE_SWEEPS):
            for limit, run in runs:
                _push_out(grid, limit, run, side)
            for limit, run in reversed(runs):
                _push_out(grid, limit, run, side)


def _push_out(grid: Grid, limit: float, run: list[int], side: float) -> None:
    """Move each bend of a run out to its limit, and as far as the adjacent bends of its lane."""
    for cell in run:
        out = max(side * limit, side * grid.x[cell])
        for other, _, _ in grid.above[cell]:
            if grid.bend[other]:
                out = max(out, side * grid.x[other])
        for other, _, _ in grid.below[cell]:
            if grid.bend[other]:
                out = max(out, side * grid.x[other])
        grid.x[cell] = side * out
        limit = grid.x[cell] + side * CELL_GAP
