"""Edges between groups, and their tracks."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import floor
from typing import TYPE_CHECKING, Final, TypeAlias

from autogradviz.scene.layout.rows_and_x_positions import Arrangement, arrange
from autogradviz.scene.schema import Cell, Link
from autogradviz.support.fast_dataclass_constructor import maker

if TYPE_CHECKING:
    from collections.abc import Sequence


# --- routing of edges between nodes as links between the cells of each group ----------------------
#
# An edge may cross group borders. In the smallest group that contains both ends it is part of a
# link from cell to cell. In each group between that one and the edge's source, it runs from a cell
# to a port on the group's top; on the target's side, from a port on the bottom to a cell. A group
# has one port for each cell of its parent at which its lines continue, so that no line is drawn
# twice, for any set of open groups.


_make_link = maker(Link)
_make_cell = maker(Cell)

MAX_PORTS: Final = 8
"""Maximum number of ports on one side of a group. If more are needed, all lines share one."""


@dataclass(slots=True)
class GroupEdges:
    """The nodes and subgroups of one group, and the links that the router builds between them."""

    parent: int
    nodes: list[int]
    groups: list[int]
    depth: int = 0
    node_cell: dict[int, int] = field(default_factory=dict)
    group_cell: dict[int, int] = field(default_factory=dict)
    inside: list[int] = field(default_factory=list)  # edges between its cells
    leaving: list[tuple[int, int]] = field(default_factory=list)  # edge, parent's cell
    entering: list[tuple[int, int]] = field(default_factory=list)  # edge, parent's cell
    top: dict[int, int] = field(default_factory=dict)  # parent's cell -> port
    bottom: dict[int, int] = field(default_factory=dict)
    links: dict[tuple[int, int], list[int]] = field(default_factory=dict)  # edges by ends


@dataclass(frozen=True, slots=True)
class GroupLayout:
    """Cells, rows and links of one group."""

    cells: tuple[Cell, ...]
    rows: tuple[tuple[int, ...], ...]
    links: tuple[Link, ...]


class EdgeRouter:
    """Builds the links of all groups."""

    def __init__(
        self,
        groups: Sequence[GroupEdges],
        edges: Sequence[tuple[int, int, int]],
        orders: Sequence[int],
    ) -> None:
        """Take groups (parents first), edges (source, target, folded views), and node orders."""
        self._groups = groups
        self._edges = edges
        self._orders = orders
        self._arranged: dict[object, tuple[Arrangement, tuple[tuple[int, ...], ...]]] = {}
        self._home = [0] * len(orders)
        for index, group in enumerate(groups):
            group.depth = groups[group.parent].depth + 1 if index else 0
            for node in group.nodes:
                self._home[node] = index

    def layouts(self) -> list[GroupLayout]:
        """Return the layout of every group."""
        for number, (source, target, _) in enumerate(self._edges):
            self._groups[self._common(source, target)].inside.append(number)
        for index in range(len(self._groups)):
            self._route(index)
        oldest = self._oldest()
        return [self._lay_out(index, oldest) for index in range(len(self._groups))]

    def _common(self, source: int, target: int) -> int:
        """Return the smallest group that contains two nodes."""
        a, b = self._home[source], self._home[target]
        while a != b:
            if self._groups[a].depth >= self._groups[b].depth:
                a = self._groups[a].parent
            else:
                b = self._groups[b].parent
        return a

    def _cell(self, index: int, node: int) -> int:
        """Return the cell of a group that is or contains a node."""
        group, home = self._groups[index], self._home[node]
        if home == index:
            return group.node_cell[node]
        while self._groups[home].parent != index:
            home = self._groups[home].parent
        return group.group_cell[home]

    def _route(self, index: int) -> None:
        """Link the cells of one group, and pass edges that cross borders to its subgroups."""
        group = self._groups[index]
        group.node_cell = {node: i for i, node in enumerate(group.nodes)}
        group.group_cell = {child: len(group.nodes) + i for i, child in enumerate(group.groups)}
        count = len(group.nodes) + len(group.groups)
        group.top = _ports(group.leaving, count)
        count += len(set(group.top.values()))
        group.bottom = _ports(group.entering, count)
        for edge in group.inside:
            source, target, _ = self._edges[edge]
            self._link(index, edge, self._cell(index, source), self._cell(index, target))
        for edge, key in group.leaving:
            self._link(index, edge, self._cell(index, self._edges[edge][0]), group.top[key])
        for edge, key in group.entering:
            self._link(index, edge, group.bottom[key], self._cell(index, self._edges[edge][1]))

    def _link(self, index: int, edge: int, source: int, target: int) -> None:
        group = self._groups[index]
        group.links.setdefault((source, target), []).append(edge)
        first = len(group.nodes)
        if first <= source < first + len(group.groups):
            self._groups[group.groups[source - first]].leaving.append((edge, target))
        if first <= target < first + len(group.groups):
            self._groups[group.groups[target - first]].entering.append((edge, source))

    def _oldest(self) -> list[int]:
        """Return the creation order of each group's oldest node."""
        oldest = [len(self._orders)] * len(self._groups)
        for index in range(len(self._groups) - 1, -1, -1):
            group = self._groups[index]
            inner = [self._orders[node] for node in group.nodes]
            inner += [oldest[child] for child in group.groups]
            oldest[index] = min(inner, default=oldest[index])
        return oldest

    def _lay_out(self, index: int, oldest: list[int]) -> GroupLayout:
        group = self._groups[index]
        tops = sorted(set(group.top.values()))
        bottoms = sorted(set(group.bottom.values()))
        inner = [self._orders[node] for node in group.nodes]
        inner += [oldest[child] for child in group.groups]
        cells = [_make_cell(kind="node", ref=node) for node in group.nodes]
        cells += [_make_cell(kind="group", ref=child) for child in group.groups]
        cells += [_make_cell(kind="top", ref=-1)] * len(tops)
        cells += [_make_cell(kind="bottom", ref=-1)] * len(bottoms)
        arrangement, rows = self._arrange(group, inner, tops, bottoms)
        cells += [_make_cell(kind="bend", ref=-1)] * arrangement.bends
        return GroupLayout(tuple(cells), rows, tuple(self._links(group, arrangement)))

    def _arrange(
        self, group: GroupEdges, inner: list[int], tops: list[int], bottoms: list[int]
    ) -> tuple[Arrangement, tuple[tuple[int, ...], ...]]:
        """Return the arrangement of a group's cells, and its rows as tuples.

        Groups with equal links whose cells were created in the same order, such as the calls of
        one module, are arranged once. ``inner`` has the creation order of nodes and subgroups.
        """
        ranks = {order: rank for rank, order in enumerate(sorted(set(inner)))}
        orders = [*map(ranks.__getitem__, inner), *range(len(tops) + len(bottoms))]
        key = tuple(orders), len(group.nodes), len(group.groups), len(tops), tuple(group.links)
        found = self._arranged.get(key)
        if found is None:
            groups = set(group.group_cell.values())
            arrangement = arrange(orders, list(group.links), tops, bottoms, groups)
            found = self._arranged[key] = arrangement, tuple(map(tuple, arrangement.rows))
        return found

    def _links(self, group: GroupEdges, arrangement: Arrangement) -> list[Link]:
        first = len(group.nodes)
        links = []
        inside = set(group.inside)
        for i, ((source, target), edges) in enumerate(group.links.items()):
            source_port = target_port = -1
            if first <= source < first + len(group.groups):
                source_port = self._groups[group.groups[source - first]].top[target]
            if first <= target < first + len(group.groups):
                target_port = self._groups[group.groups[target - first]].bottom[source]
            links.append(
                _make_link(
                    path=arrangement.paths[i],
                    edges=tuple(edges),
                    source_port=source_port,
                    target_port=target_port,
                    reversed=arrangement.reversed[i],
                    views=sum(self._edges[edge][2] for edge in edges if edge in inside),
                )
            )
        return links


def _ports(crossing: list[tuple[int, int]], first: int) -> dict[int, int]:
    """Return the port cell for each of the parent's cells at which lines continue."""
    keys = list(dict.fromkeys(key for _, key in crossing))
    if len(keys) > MAX_PORTS:
        return dict.fromkeys(keys, first)
    return {key: first + i for i, key in enumerate(keys)}


# --- tracks: the heights of the horizontal line segments between two rows -------------------------
#
# ``assets/viewer/layout/edge_tracks.js`` does the same computation in the same order.


TRACK_PITCH: Final = 8.0
TRACKS_HEIGHT: Final = 96.0
"""Maximum height of all tracks of a gap. If there are many, their pitch is smaller."""

CLEARANCE: Final = 8.0
"""Between two segments on one track."""

Step: TypeAlias = tuple[float, float, int, int]
"""One horizontal segment: x above, x below, the link, and the index in the link's path."""


def assign_tracks(steps: list[Step]) -> tuple[list[int], float]:
    """Return each step's track, 0 on top, and the distance between two tracks.

    Of the steps that go up to the right, those that start further left are higher; of those that
    go up to the left, those that start further right. Steps of one direction therefore never
    cross. The direction on top is the one that causes fewer clashes, where one line comes down at
    the x at which another starts.
    """
    tracks = [0] * len(steps)
    to_right = sorted(i for i, (upper, lower, _, _) in enumerate(steps) if upper > lower)
    to_left = sorted(i for i, (upper, lower, _, _) in enumerate(steps) if upper <= lower)
    top, bottom, sign = to_right, to_left, 1
    if _clashes(steps, to_left, to_right) > _clashes(steps, to_right, to_left):
        top, bottom, sign = to_left, to_right, -1
    count = _stack(steps, top, sign, 0, tracks)
    first = 0 if _are_disjoint(steps, to_right, to_left) else count
    count = max(count, _stack(steps, bottom, -sign, first, tracks))
    pitch = TRACK_PITCH if count < 2 else min(TRACK_PITCH, TRACKS_HEIGHT / (count - 1))  # noqa: PLR2004  one distance needs two
    return tracks, pitch


def _clashes(steps: list[Step], lower: list[int], upper: list[int]) -> int:
    """Return the number of steps of ``upper`` that start where one of ``lower`` comes down."""
    places = {floor(steps[i][0] + 0.5) for i in lower}
    return sum(floor(steps[i][1] + 0.5) in places for i in upper)


def _stack(steps: list[Step], chosen: list[int], sign: int, first: int, tracks: list[int]) -> int:
    """Assign tracks from ``first`` on to the chosen steps; return the first free track."""
    ends: list[float] = []  # of each track
    for i in sorted(chosen, key=lambda i: (sign * steps[i][1], sign * steps[i][0], i)):
        begin, end = sign * steps[i][1], sign * steps[i][0]
        track = len(ends)
        while track > 0 and ends[track - 1] + CLEARANCE <= begin:
            track -= 1
        if track == len(ends):
            ends.append(end)
        else:
            ends[track] = max(ends[track], end)
        tracks[i] = first + track
    return first + len(ends)


def _are_disjoint(steps: list[Step], some: list[int], others: list[int]) -> bool:
    """Return whether one set of steps is entirely to the left of the other."""
    if not some or not others:
        return True
    low = min(steps[i][1] for i in some)
    high = max(steps[i][0] for i in some)
    return max(steps[i][1] for i in others) + CLEARANCE <= low or high + CLEARANCE <= min(
        steps[i][0] for i in others
    )
