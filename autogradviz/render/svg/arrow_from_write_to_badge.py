"""The arrow from the write that a finding blames to the saved-tensor badge that it broke.

The viewer's ``views/graph/paint/arrow_from_write_to_badge.js`` draws the same arrow.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from autogradviz.render.svg import themes_and_primitives as svg
from autogradviz.render.svg.marks_of_findings import marked_boxes
from autogradviz.render.svg.node_boxes import BADGE_HEIGHT
from autogradviz.scene.label_text_and_width import saved_tensor_label, text_width
from autogradviz.scene.node_boxes_and_badges import BADGE_GAP, BOX_TO_BADGE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from autogradviz.render.svg.themes_and_primitives import Theme
    from autogradviz.scene.layout.coordinates import Box, Placement, Point
    from autogradviz.scene.schema import SavedTensorBadge, Scene, SceneNode

LANE: Final = 12.0
"""Distance between the badges of the rows and the arrow."""

TEXT_SIZE: Final = 11.0
EDGE: Final = 36.0
"""Room for the label on the right of the graph."""


class _Extent(NamedTuple):
    """A box with its badges."""

    left: float
    right: float
    top: float
    bottom: float


def draw_write_arrow(
    scene: Scene,
    placement: Placement,
    saved: Mapping[int, Sequence[SavedTensorBadge]],
    theme: Theme,
) -> str:
    """Return the arrow of the first finding with its label, "" if its ends are not both drawn."""
    finding = scene.findings[0] if scene.findings else None
    boxes = [box for box in placement.boxes if box.kind != "frame"]
    nodes = [box for box in boxes if box.kind == "node"]
    if finding is None:
        return ""
    wanted = set(finding.nodes)
    victims = [box for box in nodes if box.ref in wanted and _broken(saved.get(box.ref, ()))]
    culprits = [
        box
        for box in nodes
        if scene.nodes[box.ref].writes and scene.nodes[box.ref].lineno == finding.culprit_line
    ]
    if not victims or not culprits:
        return ""
    victim = victims[0]
    group = scene.nodes[victim.ref].group
    # The line may run several times: the write next to the victim.
    culprit = min(
        culprits,
        key=lambda box: (scene.nodes[box.ref].group != group, abs(box.y - victim.y)),
    )
    if victim is culprit:
        return ""
    badges = saved[victim.ref]
    badge = _broken(badges)[0]
    points = _route(scene, boxes, culprit, victim, badges)
    body = svg.path(svg.polyline(points[:-1]) + _last(points), svg.stroke(theme.mutation, 1.6))
    head = svg.path(_head(points), f'fill="{theme.mutation}"')
    slot, versions, _ = saved_tensor_label(badge.slot, badge.version, badge.seen_version, 0)
    op = scene.nodes[culprit.ref].op
    for words in (f"{op} writes {slot}{versions}".strip(), f"{op} writes {slot}", "written"):
        place = _label_place(scene, placement, boxes, (culprit, victim), points, words)
        if place is not None:
            x, y = place
            label = svg.text(x, y + 4, words, fill=theme.mutation, size=TEXT_SIZE, weight=600)
            return body + head + label
    return body + head


def _broken(badges: Sequence[SavedTensorBadge]) -> list[SavedTensorBadge]:
    return [badge for badge in badges if badge.state == "broken" and badge.width]


def _extent(scene: Scene, box: Box) -> _Extent:
    node = scene.nodes[box.ref] if box.kind == "node" else None
    before, after = (node.left_width, node.right_width) if node else (0.0, 0.0)
    right = box.x + box.width + after
    return _Extent(box.x - before, right, box.y, box.y + box.height)


def _badge_x(box: Box, badges: Sequence[SavedTensorBadge], badge: SavedTensorBadge) -> float:
    x = box.x + box.width + BOX_TO_BADGE
    for each in badges:
        if each is badge:
            break
        x += each.width + BADGE_GAP if each.width else 0.0
    return x


def _route(
    scene: Scene,
    boxes: Sequence[Box],
    culprit: Box,
    victim: Box,
    badges: Sequence[SavedTensorBadge],
) -> list[Point]:
    """Return the corners of the arrow; the last one is its tip."""
    badge = _broken(badges)[0]
    left = _badge_x(victim, badges, badge)
    badge_y, y = victim.y + victim.height / 2, culprit.y + culprit.height / 2
    up = (badge_y > y) - (badge_y < y)
    if not up and culprit.x > left:
        return [(_extent(scene, culprit).left - 2, y), (left + badge.width + 2, badge_y)]
    own = _extent(scene, culprit).right
    start = own + 4
    extents = [_extent(scene, box) for box in boxes]
    neighbors = [each for each in extents if each.left > start and each.top < y < each.bottom]
    between = [
        _extent(scene, box).right for box in boxes if (box.y - victim.y) * (box.y - culprit.y) < 0
    ]
    side = up or -1
    # In a row with others, the line leaves between the rows.
    leaving = y + side * (culprit.height / 2 + 5) if neighbors else y
    lane = LANE + max(start if neighbors else own, left, *between)
    first = start + 5 if neighbors else start
    points: list[Point] = [(start, y), (first, y)]
    tip = badge_y - (up or 1) * (BADGE_HEIGHT / 2 + 2)
    if not up or lane < left + badge.width - 6:
        at = lane if up else left + badge.width / 2
        return [*points, (first, leaving), (at, leaving), (at, tip)]
    if badges[-1] is not badge:  # it comes from above or below, not across the next badges
        at, gap = left + badge.width / 2, tip - side * 5
        return [*points, (first, leaving), (lane, leaving), (lane, gap), (at, gap), (at, tip)]
    end = left + badge.width + 2
    corner = max(lane, end + LANE)
    return [*points, (first, leaving), (corner, leaving), (corner, badge_y), (end, badge_y)]


def _last(points: Sequence[Point]) -> str:
    """Return the last segment, which ends before the tip."""
    (x, y), (tip_x, tip_y) = points[-2], points[-1]
    dx, dy = (tip_x > x) - (tip_x < x), (tip_y > y) - (tip_y < y)
    return f"M{svg.num(x)} {svg.num(y)}L{svg.num(tip_x - 6 * dx)} {svg.num(tip_y - 6 * dy)}"


def _head(points: Sequence[Point]) -> str:
    (x, y), (tip_x, tip_y) = points[-2], points[-1]
    dx, dy = (tip_x > x) - (tip_x < x), (tip_y > y) - (tip_y < y)
    corners = [
        (tip_x - 7 * dx - 4 * dy, tip_y - 7 * dy - 4 * dx),
        (tip_x - 7 * dx + 4 * dy, tip_y - 7 * dy + 4 * dx),
    ]
    lines = "".join(f"L{svg.num(a)} {svg.num(b)}" for a, b in corners)
    return f"M{svg.num(tip_x)} {svg.num(tip_y)}{lines}Z"


def _label_place(
    scene: Scene,
    placement: Placement,
    boxes: Sequence[Box],
    ends: tuple[Box, Box],
    points: Sequence[Point],
    words: str,
) -> Point | None:
    """Return the start of the label where it is on nothing else, None if there is no room."""
    culprit, victim = ends
    width = text_width(words, TEXT_SIZE, bold=True)
    extents = [_extent(scene, box) for box in boxes]
    y, victim_y = culprit.y + culprit.height / 2, victim.y + victim.height / 2
    up = (victim_y > y) - (victim_y < y)
    edge = placement.width + EDGE
    corner = max(x for x, _ in points) + BADGE_GAP
    # Inside the frames around the write.
    inner = [
        box.x + box.width
        for box in placement.boxes
        if box.kind == "frame"
        and box.x < culprit.x < box.x + box.width
        and box.y < culprit.y < box.y + box.height
    ]
    start = min(_extent(scene, culprit).right + 4, min(edge, *inner, edge) - 8 - width)
    around = _around(points, width)
    straight = len(points) == 2  # noqa: PLR2004
    places = [
        *(around if straight else []),
        *([] if up else [(victim.x + victim.width + BOX_TO_BADGE, victim_y + 21)]),
        (corner, y),
        (corner, (y + victim_y) / 2),
        (max(corner, _extent(scene, victim).right + BADGE_GAP), victim_y),
        (start, y - up * 21),
        (start, y + 21),
        (start, y - 21),
    ]

    taken = [*extents, *_signs(scene, placement), *_segments(points)]
    taken += [each for line in placement.lines for each in _segments(line.points)]

    def free(place: Point) -> bool:
        x, middle = place
        if any(x < right < x + width for right in inner):
            return False
        return x + width <= edge and all(
            each.right < x or each.left > x + width
            or each.bottom < middle - 7 or each.top > middle + 7
            for each in taken
        )  # fmt: skip

    return next(filter(free, [*places, *around]), None)


def _around(points: Sequence[Point], width: float) -> list[Point]:
    """Return places below, above and next to each part of an arrow."""
    found: list[Point] = []
    for (x, y), (to_x, to_y) in pairwise(points):
        middle, high = (x + to_x) / 2, (y + to_y) / 2
        found += [(middle - width / 2, high + dy) for dy in (21, -21, 13, -13)]
        found += [(middle + 8, high), (middle - 8 - width, high)]
    return found


def _signs(scene: Scene, placement: Placement) -> list[_Extent]:
    """Return the corners of boxes that have marks."""
    marked = [box for box, _ in marked_boxes(scene, placement)]
    red = [
        box
        for box in placement.boxes
        if (box.kind == "group" and scene.groups[box.ref].error)
        or (box.kind == "node" and _is_red(scene.nodes[box.ref]))
    ]
    return [
        _Extent(box.x + box.width - 9, box.x + box.width + 9, box.y - 10, box.y + 9)
        for box in (*marked, *red)
    ]


def _is_red(node: SceneNode) -> bool:
    return node.error or node.state == "failed"


def _segments(points: Sequence[Point]) -> list[_Extent]:
    """Return the segments of a line with some space on each side."""
    return [
        _Extent(min(x, to_x) - 3, max(x, to_x) + 3, min(y, to_y) - 1, max(y, to_y) + 1)
        for (x, y), (to_x, to_y) in pairwise(points)
    ]
