"""Coordinates of all visible boxes and lines, for any set of open groups.

``measure`` computes the geometry of each open group in its own coordinates; ``place`` moves the
groups to their positions.

Lines consist of vertical and horizontal segments. A horizontal segment is in the gap between two
rows, on its own track, so that no line crosses a box or its text. Bends keep the vertical segments
clear of the boxes.

``assets/viewer/layout/coordinates.js`` does the same computation in the same order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from autogradviz.scene.layout.group_sizes_and_main_column import (
    MIN_VIEWS,
    GroupGeometry,
    is_stub,
    measure,
)

if TYPE_CHECKING:
    from collections.abc import Collection

    from autogradviz.scene.schema import Scene, SceneGroup

LABEL_RISE: Final = 7.0  # from the row below to the middle of a label
STUB: Final = 9.0  # length of a stub

Point: TypeAlias = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Box:
    """One visible node or group, with index ``ref``."""

    kind: Literal["node", "group", "frame"]  # "frame": an open group
    ref: int
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Line:
    """One visible line, from its source to its target, in straight segments."""

    group: int
    link: int  # in that group
    points: tuple[Point, ...]
    arrow: bool  # whether it ends at a box
    stub: bool  # whether it is one end of a long link
    label: Point | None  # center of its count of views


@dataclass(slots=True)
class Placement:
    """All visible boxes and lines. Frames come before their contents."""

    width: float
    height: float
    boxes: list[Box] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)


def place(scene: Scene, open_groups: Collection[int]) -> Placement:
    """Return the coordinates of everything visible.

    Args:
        scene: the scene.
        open_groups: indices of open groups. The root is always open. A group is visible if all
            groups that contain it are open.
    """
    geometries: dict[int, GroupGeometry] = {}
    measure(scene, 0, set(open_groups), geometries)
    placement = Placement(geometries[0].width, geometries[0].height)
    _place_group(scene, 0, (0.0, 0.0), geometries, placement)
    return placement


def _place_group(
    scene: Scene, index: int, origin: Point, geometries: dict[int, GroupGeometry], out: Placement
) -> None:
    """Move a group and its contents to an origin."""
    group, geometry = scene.groups[index], geometries[index]
    dx, dy = origin
    if index:
        out.boxes.append(Box("frame", index, dx, dy, geometry.width, geometry.height))
    for i, cell in enumerate(group.cells):
        x, y = dx + geometry.x[i], dy + geometry.y[i]
        width, height = geometry.box_width[i], geometry.box_height[i]
        if cell.kind == "group" and cell.ref in geometries:
            inner_origin = (x - geometries[cell.ref].axis, y)
            _place_group(scene, cell.ref, inner_origin, geometries, out)
        elif cell.kind == "group":
            out.boxes.append(Box("group", cell.ref, x - width / 2, y, width, height))
        elif cell.kind == "node":
            out.boxes.append(Box("node", cell.ref, x - width / 2, y, width, height))
    for number, link in enumerate(group.links):
        target = group.cells[link.path[-1]]
        arrow = target.kind == "node" or (target.kind == "group" and target.ref not in geometries)
        if is_stub(link, geometry):
            out.lines.extend(_stubs(group, geometry, number, origin, arrow=arrow))
        else:
            out.lines.append(_line(group, geometry, number, origin, arrow=arrow))


def _line(
    group: SceneGroup, geometry: GroupGeometry, number: int, origin: Point, *, arrow: bool
) -> Line:
    """Return a link as vertical and horizontal segments."""
    link = group.links[number]
    source, target = link.path[0], link.path[-1]
    dx, dy = origin
    x = dx + geometry.source_x[number]
    y = dy + geometry.y[source] + (geometry.box_height[source] if link.reversed else 0.0)
    points = [(x, y)]
    label = (x, y + LABEL_RISE if link.reversed else y - LABEL_RISE)
    if geometry.leaves_sideways[number]:
        lane = dx + geometry.x[link.path[1]]
        middle = y + geometry.box_height[source] / 2
        points = [(x - geometry.box_width[source] / 2, middle), (lane, middle)]
        label = (lane, y - LABEL_RISE)
        x = lane
    last = len(link.path) - 1
    for i in range(last):
        track = geometry.track_y.get((number, i))
        if track is not None:
            to = geometry.target_x[number] if i == last - 1 else geometry.x[link.path[i + 1]]
            points.extend([(x, dy + track), (dx + to, dy + track)])
            x = dx + to
    y = dy + geometry.y[target] + (0.0 if link.reversed else geometry.box_height[target])
    points.append((x, y))
    return Line(
        group.index, number, tuple(points), arrow, False, label if link.views >= MIN_VIEWS else None
    )


def _stubs(
    group: SceneGroup, geometry: GroupGeometry, number: int, origin: Point, *, arrow: bool
) -> list[Line]:
    """Return the two ends of a link that is too long to draw."""
    link = group.links[number]
    source, target = link.path[0], link.path[-1]
    dx, dy = origin
    length = STUB if link.reversed else -STUB
    x = dx + geometry.source_x[number]
    y = dy + geometry.y[source] + (geometry.box_height[source] if link.reversed else 0.0)
    leaving = ((x, y), (x, y + length))
    x = dx + geometry.target_x[number]
    y = dy + geometry.y[target] + (0.0 if link.reversed else geometry.box_height[target])
    arriving = ((x, y - length), (x, y))
    return [
        Line(group.index, number, leaving, False, True, None),
        Line(group.index, number, arriving, arrow, True, None),
    ]
