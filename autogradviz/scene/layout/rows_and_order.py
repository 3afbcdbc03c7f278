"""Rows of one group, and the order of the cells in each row.

NOTE: steps. (1) Rows by longest path: a cell is one row below its lowest target. Links that
collapsing turned into cycles run backwards; creation order decides which. (2) Cells with more
links downwards than upwards sink to just above their sources, so that a constant that is used
late is not drawn at the top. Separate graphs with groups are drawn below each other, because an
opened group is wide. (3) A link over several rows gets one bend per row; a link over more
than ``MAX_SPAN`` rows gets none and is drawn as stubs. (4) Rows are ordered by a depth-first walk
that takes the outermost links first, which nests the lanes of skip connections, then by sweeps
that sort by the median of the neighbors, then by ``reduce_crossings``.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from autogradviz.scene.connected_components import representatives
from autogradviz.scene.layout.crossing_reduction import reduce_crossings

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

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
