"""Coordinates of everything visible, for any set of open groups.

``measure`` sizes each open group by itself; here everything is moved to where its group stands.

Lines are made of vertical and horizontal pieces. A horizontal piece lies in a gap between two
rows, on a track of its own, so no line crosses a box or its words; bends keep the vertical
pieces free of the boxes.

``assets/viewer/layout/coordinates.js`` does the same sums in the same order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from autogradviz.scene.layout.sizes import MIN_VIEWS, GroupGeometry, is_stub, measure

if TYPE_CHECKING:
    from collections.abc import Collection

    from autogradviz.scene.schema import Scene, SceneGroup

LABEL_RISE: Final = 7.0  # from the row below to the middle of a label
STUB: Final = 9.0  # the length of one

Point: TypeAlias = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Box:
    """One thing that is visible: ``ref`` is a node or a group."""

    kind: Literal["node", "group", "frame"]  # "frame": an open group
    ref: int
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Line:
    """One visible line, from its source to its target, in straight pieces."""

    group: int
    link: int  # in that group
    points: tuple[Point, ...]
    arrow: bool  # it ends at a box
    stub: bool  # only one end of a long link
    label: Point | None  # the middle of its count of views


@dataclass(slots=True)
class Placement:
    """Where everything visible stands; frames come before what they hold."""

    width: float
    height: float
    boxes: list[Box] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)


def place(scene: Scene, open_groups: Collection[int]) -> Placement:
    """Return the coordinates of what is visible; a group shows if all groups around it are open.

    Args:
        scene: what to place.
        open_groups: indices of groups; the root is always open.
    """
    sheets: dict[int, GroupGeometry] = {}
    measure(scene, 0, set(open_groups), sheets)
    placement = Placement(sheets[0].width, sheets[0].height)
    _emit(scene, 0, (0.0, 0.0), sheets, placement)
    return placement


def _emit(
    scene: Scene, index: int, origin: Point, sheets: dict[int, GroupGeometry], out: Placement
) -> None:
    """Move a measured group to its place, and everything in it."""
    group, sheet = scene.groups[index], sheets[index]
    dx, dy = origin
    if index:
        out.boxes.append(Box("frame", index, dx, dy, sheet.width, sheet.height))
    for i, cell in enumerate(group.cells):
        x, y = dx + sheet.x[i], dy + sheet.y[i]
        width, height = sheet.box_width[i], sheet.box_height[i]
        if cell.kind == "group" and cell.ref in sheets:
            _emit(scene, cell.ref, (x - sheets[cell.ref].axis, y), sheets, out)
        elif cell.kind == "group":
            out.boxes.append(Box("group", cell.ref, x - width / 2, y, width, height))
        elif cell.kind == "node":
            out.boxes.append(Box("node", cell.ref, x - width / 2, y, width, height))
    for number, link in enumerate(group.links):
        target = group.cells[link.path[-1]]
        arrow = target.kind == "node" or (target.kind == "group" and target.ref not in sheets)
        if is_stub(link, sheet):
            out.lines.extend(_stubs(group, sheet, number, origin, arrow=arrow))
        else:
            out.lines.append(_line(group, sheet, number, origin, arrow=arrow))


def _line(
    group: SceneGroup, sheet: GroupGeometry, number: int, origin: Point, *, arrow: bool
) -> Line:
    """Return a link as vertical and horizontal pieces."""
    link = group.links[number]
    source, target = link.path[0], link.path[-1]
    dx, dy = origin
    x = dx + sheet.source_x[number]
    y = dy + sheet.y[source] + (sheet.box_height[source] if link.reversed else 0.0)
    points = [(x, y)]
    label = (x, y + LABEL_RISE if link.reversed else y - LABEL_RISE)
    if sheet.beside[number]:
        lane = dx + sheet.x[link.path[1]]
        middle = y + sheet.box_height[source] / 2
        points = [(x - sheet.box_width[source] / 2, middle), (lane, middle)]
        label = (lane, y - LABEL_RISE)
        x = lane
    last = len(link.path) - 1
    for i in range(last):
        track = sheet.track_y.get((number, i))
        if track is not None:
            to = sheet.target_x[number] if i == last - 1 else sheet.x[link.path[i + 1]]
            points.extend([(x, dy + track), (dx + to, dy + track)])
            x = dx + to
    y = dy + sheet.y[target] + (0.0 if link.reversed else sheet.box_height[target])
    points.append((x, y))
    return Line(
        group.index, number, tuple(points), arrow, False, label if link.views >= MIN_VIEWS else None
    )


def _stubs(
    group: SceneGroup, sheet: GroupGeometry, number: int, origin: Point, *, arrow: bool
) -> list[Line]:
    """Return the two ends of a link that is too long to draw."""
    link = group.links[number]
    source, target = link.path[0], link.path[-1]
    dx, dy = origin
    way = STUB if link.reversed else -STUB
    x = dx + sheet.source_x[number]
    y = dy + sheet.y[source] + (sheet.box_height[source] if link.reversed else 0.0)
    leaving = ((x, y), (x, y + way))
    x = dx + sheet.target_x[number]
    y = dy + sheet.y[target] + (0.0 if link.reversed else sheet.box_height[target])
    arriving = ((x, y - way), (x, y))
    return [
        Line(group.index, number, leaving, False, True, None),
        Line(group.index, number, arriving, arrow, True, None),
    ]
