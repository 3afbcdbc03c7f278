"""One picture, one file: the scene as SVG, with literal colors and no script."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from autogradviz.errors import GraphTooLargeError
from autogradviz.render.svg import primitives as pen
from autogradviz.render.svg.groups import draw_frame, draw_group
from autogradviz.render.svg.header_legend import (
    GroupGeometry,
    draw_banner,
    draw_heading,
    draw_legend,
    draw_nothing,
)
from autogradviz.render.svg.nodes import draw_chips, draw_node, draw_pennants
from autogradviz.render.svg.theme import THEMES, Theme, ThemeName
from autogradviz.scene.formatting import plural
from autogradviz.scene.layout.coordinates import Placement, place
from autogradviz.scene.text_metrics import text_width

if TYPE_CHECKING:
    from collections.abc import Collection

    from autogradviz.scene.layout.coordinates import Line
    from autogradviz.scene.schema import Chip, Pennant, Scene

MARGIN: Final = 40.0
MIN_WIDTH: Final = 640.0
MAX_BOXES: Final = 20_000
EDGE_WIDTH: Final = 1.2
PATH_WIDTH: Final = 2.6


def render_svg(
    scene: Scene, *, open_groups: Collection[int] | None = None, theme: ThemeName = "light"
) -> str:
    """Return one self-contained SVG.

    Args:
        scene: what to draw.
        open_groups: indices of the groups to open; by default those that the scene opens.
        theme: "light" or "dark".

    Raises:
        GraphTooLargeError: if more than 20,000 boxes would be visible.
    """
    if open_groups is None:
        open_groups = {group.index for group in scene.groups if group.open}
    _refuse_huge(scene, set(open_groups))
    colors = THEMES[theme]
    placement = place(scene, open_groups)
    width = max(placement.width + 2 * MARGIN, MIN_WIDTH)
    sheet = GroupGeometry(width, MARGIN, colors)
    parts = [draw_heading(sheet, scene)]
    if scene.findings:
        parts.append(draw_banner(sheet, scene.findings[0]))
    if scene.nodes:
        left = (width - placement.width) / 2
        graph = _draw_graph(scene, placement, colors)
        parts.append(f'<g transform="translate({pen.num(left)} {pen.num(sheet.y)})">{graph}</g>')
        sheet.y += placement.height + 24
        parts.append(draw_legend(sheet, scene, placement))
    else:
        parts.append(draw_nothing(sheet))
    size = f'width="{pen.num(width)}" height="{pen.num(sheet.y)}"'
    view = f'viewBox="0 0 {pen.num(width)} {pen.num(sheet.y)}"'
    label = pen.escape(f"{scene.summary.title}. {scene.summary.subtitle}")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} {view} role="img" aria-label="{label}"'
        f' style="max-width:100%;height:auto" font-family="{pen.FONT}">\n'
        f'<rect width="100%" height="100%" fill="{colors.page}"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def _refuse_huge(scene: Scene, opened: set[int]) -> None:
    """Raise where a picture would hold too many boxes."""
    visible = 0
    waiting = [0]
    while waiting:
        for cell in scene.groups[waiting.pop()].cells:
            visible += cell.kind in {"node", "group"}
            if cell.kind == "group" and cell.ref in opened:
                waiting.append(cell.ref)
    if visible > MAX_BOXES:
        message = (
            f"{visible:,} boxes would be visible and an SVG holds at most"
            f" {MAX_BOXES:,}; open fewer groups (depth=1), or use the widget or the HTML report,"
            " which draw what is in view"
        )
        raise GraphTooLargeError(message)


def _draw_graph(scene: Scene, placement: Placement, theme: Theme) -> str:
    """Return frames, then lines, then boxes, then the words on lines."""
    chips: dict[int, list[Chip]] = {}
    for chip in scene.chips:
        chips.setdefault(chip.node, []).append(chip)
    pennants: dict[int, list[Pennant]] = {}
    for pennant in scene.pennants:
        pennants.setdefault(pennant.node, []).append(pennant)
    frames, boxes = [], []
    for box in placement.boxes:
        if box.kind == "frame":
            frames.append(draw_frame(scene.groups[box.ref], box, theme))
        elif box.kind == "group":
            boxes.append(draw_group(scene.groups[box.ref], box, theme))
        else:
            middle, right = box.y + box.height / 2, box.x + box.width
            boxes.append(draw_node(scene.nodes[box.ref], box, theme))
            boxes.append(draw_chips(chips.get(box.ref, ()), right, middle, theme))
            boxes.append(draw_pennants(pennants.get(box.ref, ()), box.x, middle, theme))
    labels = [_label(scene, line, theme) for line in placement.lines if line.label]
    return "\n".join([*frames, _draw_lines(scene, placement, theme), *boxes, *labels])


def _draw_lines(scene: Scene, placement: Placement, theme: Theme) -> str:
    """Return all lines: one path a color, so that a large graph stays a small file."""
    on_path = {i for i, edge in enumerate(scene.edges) if edge.on_path}
    parts = []
    for marked, color, width in ((False, theme.edge, EDGE_WIDTH), (True, theme.path, PATH_WIDTH)):
        lines = [line for line in placement.lines if _is_marked(scene, line, on_path) == marked]
        if lines:
            ways = "".join(pen.polyline(line.points) for line in lines)
            size = 9.0 if marked else 6.0
            heads = "".join(pen.arrow_head(line.points, size) for line in lines if line.arrow)
            heads += "".join(_dot(line) for line in lines if line.stub and not line.arrow)
            parts.append(pen.path(ways, pen.stroke(color, width)))
            parts.append(pen.path(heads, f'fill="{color}"'))
    return "\n".join(parts)


def _is_marked(scene: Scene, line: Line, on_path: set[int]) -> bool:
    if not on_path:
        return False
    return not on_path.isdisjoint(scene.groups[line.group].links[line.link].edges)


def _dot(line: Line) -> str:
    """Return the dot at the end of a stub."""
    x, y = line.points[-1]
    return f"M{pen.num(x - 2)} {pen.num(y)}a2 2 0 1 0 4 0a2 2 0 1 0 -4 0Z"


def _label(scene: Scene, line: Line, theme: Theme) -> str:
    """Return how many views are folded into a line, on the page's color."""
    assert line.label is not None
    x, y = line.label
    words = plural(scene.groups[line.group].links[line.link].views, "view")
    width = text_width(words, 9.5) + 2
    ground = f'fill="{theme.page}"'
    return pen.rect(x - width / 2, y - 7, width, 13, radius=3, style=ground) + pen.text(
        x, y + 3.2, words, fill=theme.text2, size=9.5, anchor="middle"
    )
