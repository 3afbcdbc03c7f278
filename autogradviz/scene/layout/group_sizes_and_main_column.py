"""Sizes and the main column of groups."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from autogradviz.scene.layout.edge_tracks import (
    EdgeRouter,
    GroupEdges,
    GroupLayout,
    Step,
    assign_tracks,
)
from autogradviz.scene.layout.rows_and_x_positions import (
    BEND_WEIGHT,
    MAIN_WEIGHT,
    NODE_WEIGHT,
    Grid,
    Neighbor,
    set_x_positions,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from autogradviz.scene.fold_leaves_and_views import FoldedGraph
    from autogradviz.scene.group_tree_components_and_cycles import GroupTree
    from autogradviz.scene.schema import CellKind, Link, SceneGroup, SceneNode


# --- the tree of groups as a list, parents first, and the layout of each group --------------------


class NodePlace(NamedTuple):
    """The group of a node, and whether the node is alone in its row."""

    group: int
    alone: bool
    path: str  # of the innermost module that is drawn around it


@dataclass(slots=True)
class FlatGroup:
    """One group of the tree, with references to other groups by index."""

    tree: GroupTree
    parent: int
    depth: int
    module_depth: int  # without runs, pages, steps and graphs
    children: list[int]
    nodes: list[int]  # its own and those of its subgroups


def flatten_groups(tree: GroupTree) -> list[FlatGroup]:
    """Return all groups, parents first."""
    groups: list[FlatGroup] = []
    _add(tree, -1, groups)
    return groups


def _add(tree: GroupTree, parent: int, groups: list[FlatGroup]) -> int:
    index = len(groups)
    depth = groups[parent].depth + 1 if index else 0
    counts = tree.kind not in {"repeat", "iteration", "page", "step", "graph", "compiled"}
    module_depth = groups[parent].module_depth + counts if index else 0
    group = FlatGroup(tree, parent, depth, module_depth, [], sorted(tree.all_nodes()))
    groups.append(group)
    group.children = [_add(child, index, groups) for child in tree.groups]
    return index


def lay_out_groups(groups: list[FlatGroup], folded: FoldedGraph) -> list[GroupLayout]:
    """Return the layout of every group."""
    edges = [GroupEdges(group.parent, list(group.tree.nodes), group.children) for group in groups]
    return EdgeRouter(edges, folded.edges, [node.order for node in folded.nodes]).layouts()


def find_alone(layouts: list[GroupLayout]) -> set[tuple[CellKind, int]]:
    """Return the nodes and groups that are alone in their row."""
    alone: set[tuple[CellKind, int]] = set()
    for layout in layouts:
        for row in layout.rows:
            solid = [layout.cells[i] for i in row if layout.cells[i].kind in {"node", "group"}]
            if len(solid) == 1:
                alone.add((solid[0].kind, solid[0].ref))
    return alone


def find_node_places(
    groups: list[FlatGroup], alone: set[tuple[CellKind, int]], count: int
) -> list[NodePlace]:
    """Return the place of every node, by node index."""
    places = [NodePlace(0, alone=False, path="")] * count
    for index, group in enumerate(groups):
        for node in group.tree.nodes:
            places[node] = NodePlace(index, ("node", node) in alone, group.tree.path)
    return places


# --- geometry of each open group in its own coordinates: cell sizes, positions, total size --------
#
# Open groups are measured from the inside out. ``set_x_positions`` computes the x of the cells, the
# tracks and labels determine the gaps between the rows, and the total is the size of the group's
# cell in its parent.
#
# ``assets/viewer/layout/group_sizes_and_inner_positions.js`` does the same computation in the same
# order.


NODE_HEIGHT: Final = 24.0
COMPACT_HEIGHT: Final = 18.0
GROUP_HEIGHT: Final = 28.0  # closed
STACK_HEIGHT: Final = 6.0  # additional height of a closed run of blocks
CELL_MARGIN: Final = 6.0
ROW_GAP: Final = 14.0
MIN_VIEWS: Final = 2  # folded views from which a line is labeled with their count
LABEL_GAP: Final = 28.0  # height of a gap with labels and without tracks
TRACK_TOP: Final = 13.0  # from the row above to the first track
TRACK_BOTTOM: Final = 6.0
LABEL_ROOM: Final = 14.0
HEADER_HEIGHT: Final = 30.0
HEADER_GAP: Final = 6.0  # below a header, unless lines enter there
PADDING: Final = 14.0
PILL_ROOM: Final = 126.0  # "1 recompute" on the right of a header
PORT_STEP: Final = 40.0  # between the ends of lines on one side of a box
BENT_WEIGHT: Final = 0.25  # of a link with bends, against 1


class Drawing(Protocol):
    """Groups and nodes: a scene, or a scene that is being built."""

    @property
    def groups(self) -> Sequence[SceneGroup]:
        """All groups, the root first."""

    @property
    def nodes(self) -> Sequence[SceneNode]:
        """All nodes."""


@dataclass(slots=True)
class GroupGeometry:
    """One open group, relative to its top left corner. Lists are by cell or by link."""

    box_width: list[float]
    box_height: list[float]
    left: list[float]  # from the axis, margins included
    right: list[float]
    x: list[float] = field(default_factory=list)  # the axis
    y: list[float] = field(default_factory=list)  # the top
    row_of: list[int] = field(default_factory=list)
    source_x: list[float] = field(default_factory=list)
    target_x: list[float] = field(default_factory=list)
    leaves_sideways: list[bool] = field(default_factory=list)  # by link
    track_y: dict[tuple[int, int], float] = field(default_factory=dict)  # by link and step
    axis: float = 0.0
    width: float = 0.0
    height: float = 0.0


def measure(
    scene: Drawing, index: int, opened: set[int], geometries: dict[int, GroupGeometry]
) -> None:
    """Add the geometries of a group and of the open groups in it."""
    group = scene.groups[index]
    for cell in group.cells:
        if cell.kind == "group" and cell.ref in opened:
            measure(scene, cell.ref, opened, geometries)
    geometry = _extents(scene, group, geometries)
    geometry.row_of = [0] * len(group.cells)
    for r, row in enumerate(group.rows):
        for cell_number in row:
            geometry.row_of[cell_number] = r
    _place_columns(group, geometry, geometries)
    _frame(group, geometry)
    _spread_ends(scene, group, geometry, geometries)
    _place_rows(group, geometry)
    geometries[index] = geometry


def _extents(
    scene: Drawing, group: SceneGroup, geometries: dict[int, GroupGeometry]
) -> GroupGeometry:
    """Return a geometry with the size of every cell."""
    geometry = GroupGeometry([], [], [], [])
    for cell in group.cells:
        width = height = left = right = 0.0
        if cell.kind == "node":
            node = scene.nodes[cell.ref]
            width = node.op_width + node.name_width
            height = COMPACT_HEIGHT if node.compact else NODE_HEIGHT
            left = width / 2 + node.left_width + CELL_MARGIN
            right = width / 2 + node.right_width + CELL_MARGIN
            if group.picture_width:  # instead of the node and its badges
                width, height = group.picture_width, group.picture_height
                left = right = width / 2 + CELL_MARGIN
        elif cell.kind == "group" and cell.ref in geometries:
            inner = geometries[cell.ref]
            width, height = inner.width, inner.height
            left = inner.axis + CELL_MARGIN
            right = inner.width - inner.axis + CELL_MARGIN
        elif cell.kind == "group":
            closed = scene.groups[cell.ref]
            width = closed.width
            height = GROUP_HEIGHT + (STACK_HEIGHT if closed.repeat > 1 else 0.0)
            left = width / 2 + closed.left_width + CELL_MARGIN
            right = width / 2 + closed.right_width + CELL_MARGIN
        geometry.box_width.append(width)
        geometry.box_height.append(height)
        geometry.left.append(left)
        geometry.right.append(right)
    return geometry


def _port_shift(
    group: SceneGroup, cell: int, port: int, geometries: dict[int, GroupGeometry]
) -> float:
    """Return the distance from a cell's axis to the port at which a line enters it."""
    ref = group.cells[cell].ref
    if port < 0 or ref not in geometries:
        return 0.0
    return geometries[ref].x[port] - geometries[ref].axis


def _place_columns(
    group: SceneGroup, geometry: GroupGeometry, geometries: dict[int, GroupGeometry]
) -> None:
    """Set the x of every cell. The longest path through the group becomes a straight column."""
    bend = [cell.kind == "bend" for cell in group.cells]
    above: list[list[Neighbor]] = [[] for _ in bend]
    below: list[list[Neighbor]] = [[] for _ in bend]
    cell_weight = [BEND_WEIGHT if is_bend else NODE_WEIGHT for is_bend in bend]
    main = longest_path(group)
    for cell in main:
        cell_weight[cell] = MAIN_WEIGHT
    for link in group.links:
        if is_stub(link, geometry):
            continue
        last = len(link.path) - 1
        weight = 1.0 if last == 1 else BENT_WEIGHT
        if last == 1 and link.path[0] in main and link.path[1] in main:
            weight = MAIN_WEIGHT
        for i in range(last):
            a, b = link.path[i], link.path[i + 1]
            shift = 0.0  # of a relative to b, for a straight line
            if i == 0:
                shift -= _port_shift(group, a, link.source_port, geometries)
            if i == last - 1:
                shift += _port_shift(group, b, link.target_port, geometries)
            (below if link.reversed else above)[a].append((b, shift, weight))
            (above if link.reversed else below)[b].append((a, -shift, weight))
    geometry.x = [0.0] * len(bend)
    grid = Grid(
        group.rows, bend, cell_weight, above, below, geometry.left, geometry.right, geometry.x
    )
    set_x_positions(grid)


def is_stub(link: Link, geometry: GroupGeometry) -> bool:
    """Return whether a link is too long to draw, so that only its ends are drawn."""
    rows = geometry.row_of[link.path[0]] - geometry.row_of[link.path[-1]]
    return len(link.path) == 2 and abs(rows) > 1  # noqa: PLR2004  two ends and nothing between


def _frame(group: SceneGroup, geometry: GroupGeometry) -> None:
    """Shift the columns so that the group starts at x 0; set its width and axis."""
    cells = range(len(group.cells))
    low = min((geometry.x[i] - geometry.left[i] for i in cells), default=0.0)
    high = max((geometry.x[i] + geometry.right[i] for i in cells), default=0.0)
    if group.index:
        low -= PADDING
        high += PADDING
        pill = PILL_ROOM if group.checkpointed else 0.0
        tops = [geometry.x[i] for i in cells if group.cells[i].kind == "top"]
        if tops:
            low = min(low, min(tops) - group.header_width)
            high = max(high, max(tops) + pill)
        high = max(high, low + group.header_width + pill)
    geometry.width = high - low
    for i in cells:
        geometry.x[i] -= low
    ports = sorted(geometry.x[i] for i in cells if group.cells[i].kind in ("top", "bottom"))
    geometry.axis = ports[len(ports) // 2] if ports else geometry.width / 2


def _spread_ends(
    scene: Drawing, group: SceneGroup, geometry: GroupGeometry, geometries: dict[int, GroupGeometry]
) -> None:
    """Set the x at which each link starts and ends on its boxes."""
    ends: dict[tuple[int, bool], list[tuple[float, int, bool]]] = {}  # by cell and its top side
    for number, link in enumerate(group.links):
        source, target = link.path[0], link.path[-1]
        source_x = geometry.x[source] + _port_shift(group, source, link.source_port, geometries)
        target_x = geometry.x[target] + _port_shift(group, target, link.target_port, geometries)
        geometry.source_x.append(source_x)
        geometry.target_x.append(target_x)
        geometry.leaves_sideways.append(_leaves_sideways(scene, group, link, geometry))
        if geometry.leaves_sideways[-1]:
            continue
        bent = len(link.path) > 2  # noqa: PLR2004  bends between the ends
        if is_stub(link, geometry):
            upper = lower = geometry.width + 1
        else:
            upper = geometry.x[link.path[1]] if bent else target_x
            lower = geometry.x[link.path[-2]] if bent else source_x
        ends.setdefault((source, not link.reversed), []).append((upper, number, True))
        ends.setdefault((target, link.reversed), []).append((lower, number, False))
    for (cell, _), side in sorted(ends.items()):
        kind, ref = group.cells[cell].kind, group.cells[cell].ref
        solid = kind == "node" and not scene.nodes[ref].compact
        if len(side) > 1 and (solid or (kind == "group" and ref not in geometries)):
            _spread(geometry, cell, sorted(side))


def _spread(geometry: GroupGeometry, cell: int, side: list[tuple[float, int, bool]]) -> None:
    """Spread the ends on one side of a box. A straight line keeps the middle."""
    middle = geometry.x[cell]
    lefts = [end for end in side if end[0] < middle - 1]
    rights = [end for end in side if end[0] > middle + 1]
    most = max(len(lefts), len(rights), 1)
    step = min(PORT_STEP, (geometry.box_width[cell] / 2 - 8) / most)
    for ends, sign, count in ((lefts, -1, len(lefts)), (rights, 1, 0)):
        for i, (_, number, is_source) in enumerate(ends):
            rank = count - i if sign < 0 else i + 1
            xs = geometry.source_x if is_source else geometry.target_x
            xs[number] = middle + sign * rank * step


def _leaves_sideways(
    scene: Drawing, group: SceneGroup, link: Link, geometry: GroupGeometry
) -> bool:
    """Return whether a link leaves a compact node to the left, for the lane there."""
    cell = link.path[0]
    kind, ref = group.cells[cell].kind, group.cells[cell].ref
    if kind != "node" or not scene.nodes[ref].compact or link.reversed or len(link.path) < 3:  # noqa: PLR2004  no bend
        return False
    lane = geometry.x[link.path[1]]
    if lane > geometry.x[cell] - PORT_STEP:
        return False
    row = group.rows[geometry.row_of[cell]]
    at = row.index(cell)
    return at == 0 or geometry.x[row[at - 1]] + geometry.right[row[at - 1]] < lane


def _place_rows(group: SceneGroup, geometry: GroupGeometry) -> None:
    """Set the y of every cell and of every track, and the group's height."""
    steps, labels = _steps(group, geometry)
    geometry.y = [0.0] * len(group.cells)
    bottom = 0.0
    header = HEADER_HEIGHT if group.index else 0.0
    for r, row in enumerate(group.rows):
        is_port = group.cells[row[0]].kind in ("top", "bottom")
        if r:
            label = LABEL_ROOM if labels[r - 1] else 0.0
            bottom += _place_gap(geometry, steps[r - 1], bottom + header, label)
        if not is_port or r:
            bottom += header + (HEADER_GAP if header and not r else 0.0)
            header = 0.0
        height = max(geometry.box_height[cell] for cell in row)
        for cell in row:
            geometry.y[cell] = bottom + (height - geometry.box_height[cell]) / 2
        bottom += height
    ends_in_ports = bool(group.rows) and group.cells[group.rows[-1][0]].kind == "bottom"
    geometry.height = bottom if ends_in_ports or not group.index else bottom + PADDING


def _steps(group: SceneGroup, geometry: GroupGeometry) -> tuple[list[list[Step]], list[bool]]:
    """Return for each gap between rows its horizontal steps, and whether it contains labels."""
    steps: list[list[Step]] = [[] for _ in group.rows]
    labels = [False] * len(group.rows)
    for number, link in enumerate(group.links):
        if is_stub(link, geometry):
            continue
        last = len(link.path) - 1
        if link.views >= MIN_VIEWS:
            labels[min(geometry.row_of[link.path[0]], geometry.row_of[link.path[1]])] = True
        for i in range(last):
            if i == 0 and geometry.leaves_sideways[number]:
                continue
            a = geometry.source_x[number] if i == 0 else geometry.x[link.path[i]]
            b = geometry.target_x[number] if i == last - 1 else geometry.x[link.path[i + 1]]
            if abs(a - b) > 0.5:  # noqa: PLR2004  less is straight
                gap = min(geometry.row_of[link.path[i]], geometry.row_of[link.path[i + 1]])
                upper, lower = (a, b) if link.reversed else (b, a)
                steps[gap].append((upper, lower, number, i))
    return steps, labels


def _place_gap(geometry: GroupGeometry, steps: list[Step], top: float, label: float) -> float:
    """Assign tracks to the steps in a gap; return the height of the gap."""
    tracks, pitch = assign_tracks(steps)
    for (_, _, number, i), track in zip(steps, tracks, strict=True):
        geometry.track_y[number, i] = top + TRACK_TOP + track * pitch
    if not tracks:
        return LABEL_GAP if label else ROW_GAP
    return TRACK_TOP + max(tracks) * pitch + TRACK_BOTTOM + label


# --- the longest path through a group: its main column --------------------------------------------
#
# ``assets/viewer/layout/main_column.js`` does the same computation in the same order.


def longest_path(group: SceneGroup) -> set[int]:
    """Return the cells of a longest path from the bottom of a group to its top.

    Of several longest paths, return the one in the middle.
    """
    count = len(group.cells)
    position = [0] * count
    for row in group.rows:
        for i, cell in enumerate(row):
            position[cell] = i
    uppers: list[list[int]] = [[] for _ in range(count)]
    for link in group.links:
        source, target = link.path[0], link.path[-1]
        lower, upper = (target, source) if link.reversed else (source, target)
        uppers[lower].append(upper)
    up = [0] * count  # links above, on the longest path
    for row in group.rows:
        for cell in row:
            up[cell] = max([up[upper] + 1 for upper in uppers[cell]], default=0)
    longest = max(up, default=0)
    path: set[int] = set()
    ends = [cell for cell in range(count) if up[cell] == longest and longest > 0]
    while ends:
        ends.sort(key=lambda cell: (position[cell], cell))
        cell = ends[(len(ends) - 1) // 2]
        path.add(cell)
        ends = [upper for upper in uppers[cell] if up[upper] == up[cell] - 1]
    return path
