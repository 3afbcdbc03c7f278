"""Rows, order and positions of boxes."""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

from autogradviz.scene.group_tree_components_and_cycles import representatives
from autogradviz.scene.layout.crossing_reduction import reduce_crossings

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence


# --- rows of one group, and the order of the cells in each row ------------------------------------
#
# NOTE: steps. (1) Rows by longest path: a cell is one row below its lowest target. Links that
# collapsing turned into cycles run backwards; creation order decides which. (2) Cells with more
# links downwards than upwards sink to just above their sources, so that a constant that is used
# late is not drawn at the top. Separate graphs with groups are drawn below each other, because an
# opened group is wide. (3) A link over several rows gets one bend per row; a link over more
# than ``MAX_SPAN`` rows gets none and is drawn as stubs. (4) Rows are ordered by a depth-first walk
# that takes the outermost links first, which nests the lanes of skip connections, then by sweeps
# that sort by the median of the neighbors, then by ``reduce_crossings``.


MAX_SPAN: Final = 32
"""Maximum number of rows that a drawn link crosses."""

BENDS_PER_CELL: Final = 6
FREE_BENDS: Final = 2_000
SWEEPS: Final = 2


@dataclass(slots=True)
class Arrangement:
    """Rows and link paths of one group. The indices of bends follow those of the other cells."""

    rows: list[list[int]]
    paths: list[tuple[int, ...]]  # by link
    reversed: list[bool]  # by link
    bends: int


@dataclass(slots=True)
class _Ranks:
    """The rows of cells during ranking."""

    row: list[int]
    reversed: list[bool]
    settled: list[int] = field(default_factory=list)  # inner cells, targets first


def arrange(
    orders: Sequence[float],
    links: Sequence[tuple[int, int]],
    tops: Sequence[int],
    bottoms: Sequence[int],
    groups: Collection[int] = (),
) -> Arrangement:
    """Return the rows of a group's cells and the paths of its links.

    Args:
        orders: creation order of each cell, also of ports.
        links: source and target cell of each link, without repeats.
        tops: cells that are ports on the group's top.
        bottoms: cells that are ports on its bottom.
        groups: cells that are groups.
    """
    ranks = _rank(orders, links, tops, bottoms)
    _sink(ranks, links)
    if len(groups) > 1 and not tops and not bottoms:
        _stack(ranks, links, groups)
    _compact(ranks, tops, bottoms)
    paths, rows_of_bends = _add_bends(ranks, links)
    row = ranks.row + rows_of_bends
    rows: list[list[int]] = [[] for _ in range(max(row, default=-1) + 1)]
    above: list[list[int]] = [[] for _ in row]
    below: list[list[int]] = [[] for _ in row]
    for path in sorted(paths, key=lambda path: _side_key(path, groups)):
        if row[path[0]] - row[path[-1]] in {len(path) - 1, 1 - len(path)}:
            for a, b in itertools.pairwise(path):
                upper, lower = (a, b) if row[a] < row[b] else (b, a)
                below[upper].append(lower)
                above[lower].append(upper)
    for cell in _walk(row, orders, below):
        rows[row[cell]].append(cell)
    _sort_by_medians(rows, _prefer_boxes(above, len(orders)), _prefer_boxes(below, len(orders)))
    reduce_crossings(rows, above, below, len(orders))
    return Arrangement(rows, paths, ranks.reversed, len(rows_of_bends))


def _side_key(path: tuple[int, ...], groups: Collection[int]) -> tuple[int, int]:
    """Return a key that sorts links from left to right, the longest outermost.

    Links pass rows on the left, but links to a group pass on the right, because the ports of a
    group are in creation order and its first user is usually directly below it.
    """
    bends = len(path) - 2
    if bends and path[-1] in groups:
        return 1, bends
    return 0, -bends


def _rank(
    orders: Sequence[float],
    links: Sequence[tuple[int, int]],
    tops: Sequence[int],
    bottoms: Sequence[int],
) -> _Ranks:
    """Assign every inner cell to the row below its lowest target, from row 1 on."""
    ports = {*tops, *bottoms}
    ranks = _Ranks([1] * len(orders), [False] * len(links))
    users: list[list[int]] = [[] for _ in orders]  # links by target
    waiting = [0] * len(orders)
    for number, (source, target) in enumerate(links):
        if source not in ports and target not in ports:
            users[target].append(number)
            waiting[source] += 1
    inner = sorted((i for i in range(len(orders)) if i not in ports), key=lambda i: (orders[i], i))
    free = [(orders[i], i) for i in inner if not waiting[i]]
    done = [False] * len(orders)
    oldest = iter(inner)
    while len(ranks.settled) < len(inner):
        # Without a free cell there is a cycle: take its oldest cell first.
        cell = heapq.heappop(free)[1] if free else next(i for i in oldest if not done[i])
        if done[cell]:
            continue
        done[cell] = True
        ranks.settled.append(cell)
        for number in users[cell]:
            source = links[number][0]
            if done[source]:
                ranks.reversed[number] = True
                continue
            ranks.row[source] = max(ranks.row[source], ranks.row[cell] + 1)
            waiting[source] -= 1
            if not waiting[source]:
                heapq.heappush(free, (orders[source], source))
    return ranks


def _sink(ranks: _Ranks, links: Sequence[tuple[int, int]]) -> None:
    """Move cells down to their sources unless that makes links longer."""
    targets = [0] * len(ranks.row)
    sources: list[list[int]] = [[] for _ in ranks.row]
    inner = set(ranks.settled)
    for number, (source, target) in enumerate(links):
        if ranks.reversed[number]:
            source, target = target, source  # noqa: PLW2901  it is drawn reversed
        targets[source] += 1
        if source in inner:
            sources[target].append(source)
    for cell in reversed(ranks.settled):
        if sources[cell] and len(sources[cell]) >= targets[cell]:
            ranks.row[cell] = max(
                ranks.row[cell], min(ranks.row[source] for source in sources[cell]) - 1
            )


def _stack(ranks: _Ranks, links: Sequence[tuple[int, int]], groups: Collection[int]) -> None:
    """Move connected components with groups below each other, in the order of their groups."""
    component = representatives(len(ranks.row), links)
    members: dict[int, list[int]] = {component[group]: [] for group in sorted(groups)}
    for cell in ranks.settled:
        if component[cell] in members:
            members[component[cell]].append(cell)
    top = 1
    for cells in members.values():
        shift = top - min(ranks.row[cell] for cell in cells)
        for cell in cells:
            ranks.row[cell] += shift
        top = 1 + max(ranks.row[cell] for cell in cells)


def _compact(ranks: _Ranks, tops: Sequence[int], bottoms: Sequence[int]) -> None:
    """Number the rows from 0 without gaps. Ports are in the first and the last row."""
    used = sorted({ranks.row[cell] for cell in ranks.settled})
    number = {row: i + bool(tops) for i, row in enumerate(used)}
    for cell in ranks.settled:
        ranks.row[cell] = number[ranks.row[cell]]
    for cell in tops:
        ranks.row[cell] = 0
    for cell in bottoms:
        ranks.row[cell] = len(used) + bool(tops)


def _add_bends(
    ranks: _Ranks, links: Sequence[tuple[int, int]]
) -> tuple[list[tuple[int, ...]], list[int]]:
    """Return each link's path, and the row of every bend."""
    spans = [abs(ranks.row[source] - ranks.row[target]) for source, target in links]
    longest = _longest_span(spans, BENDS_PER_CELL * len(ranks.row) + FREE_BENDS)
    paths: list[tuple[int, ...]] = []
    rows: list[int] = []
    for (source, target), span in zip(links, spans, strict=True):
        if span > longest:
            paths.append((source, target))
            continue
        step = 1 if ranks.row[target] > ranks.row[source] else -1
        first = len(ranks.row) + len(rows)
        rows.extend(range(ranks.row[source] + step, ranks.row[target], step))
        paths.append((source, *range(first, first + span - 1), target))
    return paths, rows


def _longest_span(spans: list[int], budget: int) -> int:
    """Return the maximum span of a link with bends, so that the budget of bends is kept."""
    counts = Counter(spans)
    for span in range(2, MAX_SPAN + 1):
        budget -= counts[span] * (span - 1)
        if budget < 0:
            return span - 1
    return MAX_SPAN


def _walk(row: list[int], orders: Sequence[float], below: list[list[int]]) -> list[int]:
    """Return all cells in depth-first order from the top.

    A lane is followed only to its last bend. The box after it is reached from the boxes above it,
    after the lanes that pass it.
    """
    cells = sorted(range(len(orders)), key=lambda i: (row[i], orders[i], i))
    seen = [False] * len(row)
    found: list[int] = []
    for start in cells:
        stack = [start]
        while stack:
            cell = stack.pop()
            if not seen[cell]:
                seen[cell] = True
                found.append(cell)
                is_bend = cell >= len(orders)
                stack.extend(c for c in reversed(below[cell]) if not is_bend or c >= len(orders))
    return found


def _prefer_boxes(neighbors: list[list[int]], count: int) -> list[list[int]]:
    """Return the neighbors of each cell without bends, or the bends if there are no boxes.

    A lane then never shifts a column, and stays on its side of it.
    """
    preferred = []
    for cells in neighbors:
        boxes = [cell for cell in cells if cell < count] if len(cells) > 1 else cells
        preferred.append(boxes or cells)
    return preferred


def _sort_by_medians(rows: list[list[int]], above: list[list[int]], below: list[list[int]]) -> None:
    """Sort the rows by the medians of their neighbors, in sweeps down and up."""
    at = [0.0] * len(above)
    for row in rows:
        for i, cell in enumerate(row):
            at[cell] = float(i)
    wide = [row for row in rows if len(row) > 1]
    for _ in range(SWEEPS):
        for row in wide:
            _sort_row(row, above, at)
        for row in reversed(wide):
            _sort_row(row, below, at)


def _sort_row(row: list[int], neighbors: list[list[int]], at: list[float]) -> None:
    keys = {cell: _median(neighbors[cell], at, at[cell]) for cell in row}
    row.sort(key=keys.__getitem__)
    for i, cell in enumerate(row):
        at[cell] = float(i)


def _median(cells: list[int], at: list[float], own: float) -> float:
    if not cells:
        return own
    if len(cells) == 1:
        return at[cells[0]]
    places = sorted(at[cell] for cell in cells)
    half = len(places) // 2
    if len(places) % 2:
        return places[half]
    return (places[half - 1] + places[half]) / 2


# --- the x of every cell of one group: straight columns, no overlaps ------------------------------
#
# NOTE: algorithm. All cells start at 0. Sweeps down and up the rows compute for each cell the
# weighted median of its neighbors' x. The result is made feasible by isotonic regression: the
# nearest positions, in the least-squares sense, that keep the order and distances of the row.
# Nodes weigh so much more than bends that a bend never moves a column, and nodes on the longest
# path weigh so much more than others that the main column stays straight. Finally the bends on the
# outer sides become lanes: straight from end to end, and as near to the column as the widest row
# along them allows.
#
# ``assets/viewer/layout/x_positions.js`` does the same computation in the same order.


CELL_GAP: Final = 12.0
"""Between the margins of neighboring cells, and between lanes."""

BEND_WEIGHT: Final = 1.0
NODE_WEIGHT: Final = 1000.0
MAIN_WEIGHT: Final = 1e9  # of cells on the longest path through the group
POSITION_SWEEPS: Final = 7
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
    for sweep in range(POSITION_SWEEPS if len(grid.x) < MANY_CELLS else FEW_SWEEPS):
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
