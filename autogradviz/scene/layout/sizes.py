"""How large each open group is, and where everything stands in it.

Each open group is measured by itself, the innermost first: ``set_columns`` gives its cells their x,
the gaps between its rows grow by what runs through them, and the sum is the size of the group's
cell one level up.

``assets/viewer/layout/sizes.js`` does the same sums in the same order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from autogradviz.scene.layout.edge_tracks import Step, assign_tracks
from autogradviz.scene.layout.longest_path import longest_way
from autogradviz.scene.layout.x_positions import (
    BEND_WEIGHT,
    MAIN_WEIGHT,
    NODE_WEIGHT,
    Grid,
    Neighbor,
    set_columns,
)

if TYPE_CHECKING:
    from autogradviz.scene.schema import Link, Scene, SceneGroup

NODE_HEIGHT: Final = 24.0
COMPACT_HEIGHT: Final = 18.0
GROUP_HEIGHT: Final = 28.0  # closed
STACK_HEIGHT: Final = 6.0  # more, of a closed run of blocks
CELL_MARGIN: Final = 6.0
ROW_GAP: Final = 14.0
MIN_VIEWS: Final = 2  # folded views that a line says
LABEL_GAP: Final = 28.0  # at least, where a line's count of views stands
TRACK_TOP: Final = 13.0  # from the row above to the first track
TRACK_BOTTOM: Final = 6.0
LABEL_ROOM: Final = 14.0
HEADER_HEIGHT: Final = 30.0
PADDING: Final = 14.0
PILL_ROOM: Final = 126.0  # "1 recompute" on the right of a header
PORT_STEP: Final = 40.0  # between the ends of lines on one side of a box
BENT_WEIGHT: Final = 0.25  # of a link with bends, against 1


@dataclass(slots=True)
class GroupGeometry:
    """One open group, measured from its own top left corner. Lists are by cell or by link."""

    box_width: list[float]
    box_height: list[float]
    left: list[float]  # from the axis, margins included
    right: list[float]
    x: list[float] = field(default_factory=list)  # the axis
    y: list[float] = field(default_factory=list)  # the top
    row_of: list[int] = field(default_factory=list)
    source_x: list[float] = field(default_factory=list)
    target_x: list[float] = field(default_factory=list)
    beside: list[bool] = field(default_factory=list)  # leaves its source on the left
    track_y: dict[tuple[int, int], float] = field(default_factory=dict)  # by link and step
    axis: float = 0.0
    width: float = 0.0
    height: float = 0.0


def measure(scene: Scene, index: int, opened: set[int], sheets: dict[int, GroupGeometry]) -> None:
    """Fill in the sheets of a group and of the open groups in it."""
    group = scene.groups[index]
    for cell in group.cells:
        if cell.kind == "group" and cell.ref in opened:
            measure(scene, cell.ref, opened, sheets)
    sheet = _extents(scene, group, sheets)
    sheet.row_of = [0] * len(group.cells)
    for r, row in enumerate(group.rows):
        for cell_number in row:
            sheet.row_of[cell_number] = r
    _place_columns(group, sheet, sheets)
    _frame(group, sheet)
    _spread_ends(scene, group, sheet, sheets)
    _place_rows(group, sheet)
    sheets[index] = sheet


def _extents(scene: Scene, group: SceneGroup, sheets: dict[int, GroupGeometry]) -> GroupGeometry:
    """Return a sheet that knows how large every cell is."""
    sheet = GroupGeometry([], [], [], [])
    for cell in group.cells:
        width = height = left = right = 0.0
        if cell.kind == "node":
            node = scene.nodes[cell.ref]
            width = node.op_width + node.name_width
            height = COMPACT_HEIGHT if node.compact else NODE_HEIGHT
            left = width / 2 + node.left_width + CELL_MARGIN
            right = width / 2 + node.right_width + CELL_MARGIN
        elif cell.kind == "group" and cell.ref in sheets:
            inner = sheets[cell.ref]
            width, height = inner.width, inner.height
            left = inner.axis + CELL_MARGIN
            right = inner.width - inner.axis + CELL_MARGIN
        elif cell.kind == "group":
            closed = scene.groups[cell.ref]
            width = closed.width
            height = GROUP_HEIGHT + (STACK_HEIGHT if closed.repeat > 1 else 0.0)
            left = width / 2 + closed.left_width + CELL_MARGIN
            right = width / 2 + closed.right_width + CELL_MARGIN
        sheet.box_width.append(width)
        sheet.box_height.append(height)
        sheet.left.append(left)
        sheet.right.append(right)
    return sheet


def _port_shift(group: SceneGroup, cell: int, port: int, sheets: dict[int, GroupGeometry]) -> float:
    """Return how far right of a cell's axis a line enters it."""
    ref = group.cells[cell].ref
    if port < 0 or ref not in sheets:
        return 0.0
    return sheets[ref].x[port] - sheets[ref].axis


def _place_columns(
    group: SceneGroup, sheet: GroupGeometry, sheets: dict[int, GroupGeometry]
) -> None:
    """Set the x of every cell. The longest way through the group is its straight column."""
    bend = [cell.kind == "bend" for cell in group.cells]
    above: list[list[Neighbor]] = [[] for _ in bend]
    below: list[list[Neighbor]] = [[] for _ in bend]
    cell_weight = [BEND_WEIGHT if is_bend else NODE_WEIGHT for is_bend in bend]
    main = longest_way(group)
    for cell in main:
        cell_weight[cell] = MAIN_WEIGHT
    for link in group.links:
        if is_stub(link, sheet):
            continue
        last = len(link.path) - 1
        weight = 1.0 if last == 1 else BENT_WEIGHT
        if last == 1 and link.path[0] in main and link.path[1] in main:
            weight = MAIN_WEIGHT
        for i in range(last):
            a, b = link.path[i], link.path[i + 1]
            shift = 0.0  # of a, as b wants it
            if i == 0:
                shift -= _port_shift(group, a, link.source_port, sheets)
            if i == last - 1:
                shift += _port_shift(group, b, link.target_port, sheets)
            (below if link.reversed else above)[a].append((b, shift, weight))
            (above if link.reversed else below)[b].append((a, -shift, weight))
    sheet.x = [0.0] * len(bend)
    grid = Grid(group.rows, bend, cell_weight, above, below, sheet.left, sheet.right, sheet.x)
    set_columns(grid)


def is_stub(link: Link, sheet: GroupGeometry) -> bool:
    """Return whether a link is too long to draw: only its ends show."""
    rows = sheet.row_of[link.path[0]] - sheet.row_of[link.path[-1]]
    return len(link.path) == 2 and abs(rows) > 1  # noqa: PLR2004  two ends and nothing between


def _frame(group: SceneGroup, sheet: GroupGeometry) -> None:
    """Move the columns to the right of the group's left side; set its width and axis."""
    cells = range(len(group.cells))
    low = min((sheet.x[i] - sheet.left[i] for i in cells), default=0.0)
    high = max((sheet.x[i] + sheet.right[i] for i in cells), default=0.0)
    if group.index:
        low -= PADDING
        high += PADDING
        pill = PILL_ROOM if group.checkpointed else 0.0
        tops = [sheet.x[i] for i in cells if group.cells[i].kind == "top"]
        if tops:
            low = min(low, min(tops) - group.header_width)
            high = max(high, max(tops) + pill)
        high = max(high, low + group.header_width + pill)
    sheet.width = high - low
    for i in cells:
        sheet.x[i] -= low
    ports = sorted(sheet.x[i] for i in cells if group.cells[i].kind in ("top", "bottom"))
    sheet.axis = ports[len(ports) // 2] if ports else sheet.width / 2


def _spread_ends(
    scene: Scene, group: SceneGroup, sheet: GroupGeometry, sheets: dict[int, GroupGeometry]
) -> None:
    """Set where on its boxes each link begins and ends."""
    ends: dict[tuple[int, bool], list[tuple[float, int, bool]]] = {}  # by cell and its top side
    for number, link in enumerate(group.links):
        source, target = link.path[0], link.path[-1]
        source_x = sheet.x[source] + _port_shift(group, source, link.source_port, sheets)
        target_x = sheet.x[target] + _port_shift(group, target, link.target_port, sheets)
        sheet.source_x.append(source_x)
        sheet.target_x.append(target_x)
        sheet.beside.append(_leaves_beside(scene, group, link, sheet))
        if sheet.beside[-1]:
            continue
        stub = is_stub(link, sheet)
        upper = sheet.width + 1 if stub else (target_x, sheet.x[link.path[1]])[len(link.path) > 2]  # noqa: PLR2004  bends between
        lower = sheet.width + 1 if stub else (source_x, sheet.x[link.path[-2]])[len(link.path) > 2]  # noqa: PLR2004  bends between
        ends.setdefault((source, not link.reversed), []).append((upper, number, True))
        ends.setdefault((target, link.reversed), []).append((lower, number, False))
    for (cell, _), side in sorted(ends.items()):
        kind, ref = group.cells[cell].kind, group.cells[cell].ref
        solid = kind == "node" and not scene.nodes[ref].compact
        if len(side) > 1 and (solid or (kind == "group" and ref not in sheets)):
            _spread(sheet, cell, sorted(side))


def _spread(sheet: GroupGeometry, cell: int, side: list[tuple[float, int, bool]]) -> None:
    """Spread the ends on one side of a box; the straight one keeps the middle."""
    middle = sheet.x[cell]
    lefts = [end for end in side if end[0] < middle - 1]
    rights = [end for end in side if end[0] > middle + 1]
    most = max(len(lefts), len(rights), 1)
    step = min(PORT_STEP, (sheet.box_width[cell] / 2 - 8) / most)
    for ends, sign, count in ((lefts, -1, len(lefts)), (rights, 1, 0)):
        for i, (_, number, is_source) in enumerate(ends):
            rank = count - i if sign < 0 else i + 1
            xs = sheet.source_x if is_source else sheet.target_x
            xs[number] = middle + sign * rank * step


def _leaves_beside(scene: Scene, group: SceneGroup, link: Link, sheet: GroupGeometry) -> bool:
    """Return whether a link leaves a compact node sideways, to the lane on its left."""
    cell = link.path[0]
    kind, ref = group.cells[cell].kind, group.cells[cell].ref
    if kind != "node" or not scene.nodes[ref].compact or link.reversed or len(link.path) < 3:  # noqa: PLR2004  no bend
        return False
    lane = sheet.x[link.path[1]]
    if lane > sheet.x[cell] - PORT_STEP:
        return False
    row = group.rows[sheet.row_of[cell]]
    at = row.index(cell)
    return at == 0 or sheet.x[row[at - 1]] + sheet.right[row[at - 1]] < lane


def _place_rows(group: SceneGroup, sheet: GroupGeometry) -> None:
    """Set the y of every cell and of every track, and the group's height."""
    steps, labels = _steps(group, sheet)
    sheet.y = [0.0] * len(group.cells)
    bottom = 0.0
    header = HEADER_HEIGHT if group.index else 0.0
    for r, row in enumerate(group.rows):
        is_port = group.cells[row[0]].kind in ("top", "bottom")
        if r:
            label = LABEL_ROOM if labels[r - 1] else 0.0
            bottom += _place_gap(sheet, steps[r - 1], bottom + header, label)
        if not is_port or r:
            bottom += header
            header = 0.0
        height = max(sheet.box_height[cell] for cell in row)
        for cell in row:
            sheet.y[cell] = bottom + (height - sheet.box_height[cell]) / 2
        bottom += height
    ends_in_ports = bool(group.rows) and group.cells[group.rows[-1][0]].kind == "bottom"
    sheet.height = bottom if ends_in_ports or not group.index else bottom + PADDING


def _steps(group: SceneGroup, sheet: GroupGeometry) -> tuple[list[list[Step]], list[bool]]:
    """Return for each gap the sideways steps through it, and whether labels stand in it."""
    steps: list[list[Step]] = [[] for _ in group.rows]
    labels = [False] * len(group.rows)
    for number, link in enumerate(group.links):
        if is_stub(link, sheet):
            continue
        last = len(link.path) - 1
        if link.views >= MIN_VIEWS:
            labels[min(sheet.row_of[link.path[0]], sheet.row_of[link.path[1]])] = True
        for i in range(last):
            if i == 0 and sheet.beside[number]:
                continue
            a = sheet.source_x[number] if i == 0 else sheet.x[link.path[i]]
            b = sheet.target_x[number] if i == last - 1 else sheet.x[link.path[i + 1]]
            if abs(a - b) > 0.5:  # noqa: PLR2004  less is straight
                gap = min(sheet.row_of[link.path[i]], sheet.row_of[link.path[i + 1]])
                upper, lower = (a, b) if link.reversed else (b, a)
                steps[gap].append((upper, lower, number, i))
    return steps, labels


def _place_gap(sheet: GroupGeometry, steps: list[Step], top: float, label: float) -> float:
    """Give the steps through a gap their tracks; return the height of the gap."""
    tracks, pitch = assign_tracks(steps)
    for (_, _, number, i), track in zip(steps, tracks, strict=True):
        sheet.track_y[number, i] = top + TRACK_TOP + track * pitch
    if not tracks:
        return LABEL_GAP if label else ROW_GAP
    return TRACK_TOP + max(tracks) * pitch + TRACK_BOTTOM + label
