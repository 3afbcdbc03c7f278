"""The SVG of a scene: one self-contained file with literal colors and no script."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from autogradviz.analysis.formatting import plural
from autogradviz.errors import GraphTooLargeError
from autogradviz.render.svg import themes_and_primitives as svg
from autogradviz.render.svg.arrow_from_write_to_badge import EDGE as ARROW_EDGE
from autogradviz.render.svg.arrow_from_write_to_badge import draw_write_arrow
from autogradviz.render.svg.compiled_region import draw_picture
from autogradviz.render.svg.fit_column_of_paper import PAPER_MARGIN, fit_to_column, room_of
from autogradviz.render.svg.marks_of_findings import draw_marks
from autogradviz.render.svg.node_boxes import draw_node, draw_parameters, draw_saved_tensors
from autogradviz.render.svg.themes_and_primitives import Theme, ThemeName, find_theme
from autogradviz.render.svg.title_group_headers_and_legend import (
    Page,
    byte_bar,
    draw_banner,
    draw_detaches,
    draw_empty_message,
    draw_frame,
    draw_group,
    draw_header,
    draw_legend,
    draw_title,
)
from autogradviz.scene.build_groups import PICTURE_MARGIN
from autogradviz.scene.label_text_and_width import text_width
from autogradviz.scene.layout.coordinates import Placement, place

if TYPE_CHECKING:
    from collections.abc import Collection

    from autogradviz.scene.layout.coordinates import Box, Line
    from autogradviz.scene.schema import (
        ParameterBadge,
        SavedTensorBadge,
        Scene,
        SceneCompiledPicture,
    )

MARGIN: Final = 40.0
MIN_WIDTH: Final = 640.0
MAX_BOXES: Final = 20_000
EDGE_WIDTH: Final = 1.2
PATH_WIDTH: Final = 2.6


def render_svg(
    scene: Scene,
    *,
    open_groups: Collection[int] | None = None,
    theme: ThemeName = "light",
    width_mm: float | None = None,
) -> str:
    """Return a scene as SVG.

    Args:
        scene: the scene to draw.
        open_groups: indices of the groups to open; by default those that the scene opens.
        theme: "light" or "dark".
        width_mm: width of a column of a paper: the graph with its legend, without title, finding
            and expanders, with less in it if it would not be readable.

    Raises:
        ValueError: if the width is not positive.
        GraphTooLargeError: if more than 20,000 boxes would be visible.
    """
    if open_groups is None:
        open_groups = {group.index for group in scene.groups if group.open}
    _check_size(scene, set(open_groups))
    colors = find_theme(theme)
    parts = []
    if width_mm is None:
        placement = place(scene, open_groups)
        subtitle = _subtitle(scene, placement)
        page = Page(max(placement.width + 2 * MARGIN, MIN_WIDTH), MARGIN, colors)
        parts.append(draw_title(page, scene, subtitle))
        parts += [draw_banner(page, scene.findings[0])] if scene.findings else []
    else:
        # The label of a write may end next to the graph.
        room, edge = room_of(width_mm), ARROW_EDGE if scene.findings else PAPER_MARGIN
        scene = fit_to_column(scene, open_groups, room - PAPER_MARGIN - edge)
        placement = place(scene, open_groups)
        subtitle = _subtitle(scene, placement)
        width = max(room, placement.width + PAPER_MARGIN + edge)
        page = Page(width, PAPER_MARGIN, colors, PAPER_MARGIN)
    width = page.width
    if scene.nodes:
        left = (width - placement.width) / 2
        graph = draw_graph(scene, placement, colors, chevrons=width_mm is None)
        parts.append(f'<g transform="translate({svg.num(left)} {svg.num(page.y)})">{graph}</g>')
        page.y += placement.height + 24
        parts.append(draw_legend(page, scene, placement))
    else:
        parts.append(draw_empty_message(page))
    size = svg.size(width, page.y, width_mm)
    view = f'viewBox="0 0 {svg.num(width)} {svg.num(page.y)}"'
    label = svg.escape(f"{scene.summary.title}. {subtitle}")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} {view} role="img" aria-label="{label}"'
        f' style="max-width:100%;height:auto" font-family="{svg.FONT}">\n'
        f'<rect width="100%" height="100%" fill="{colors.page}"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def _subtitle(scene: Scene, placement: Placement) -> str:
    """Return the figures of the graph, after the number of boxes if each is not one node."""
    summary, boxes = scene.summary, sum(box.kind != "frame" for box in placement.boxes)
    if boxes in {0, summary.nodes}:
        return summary.subtitle
    return f"{boxes:,} {'box' if boxes == 1 else 'boxes'} for {summary.subtitle}"


def _check_size(scene: Scene, opened: set[int]) -> None:
    """Raise ``GraphTooLargeError`` if more than ``MAX_BOXES`` boxes would be visible."""
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
            " which draw only the visible part"
        )
        raise GraphTooLargeError(message)


def draw_graph(scene: Scene, placement: Placement, theme: Theme, *, chevrons: bool = True) -> str:
    """Return frames, then lines, then headers and boxes, then the labels of lines."""
    saved: dict[int, list[SavedTensorBadge]] = {}
    for badge in scene.saved_badges:
        saved.setdefault(badge.node, []).append(badge)
    parameters: dict[int, list[ParameterBadge]] = {}
    for parameter in scene.parameter_badges:
        parameters.setdefault(parameter.node, []).append(parameter)
    opened = _opened_pictures(scene)
    all_nbytes = scene.summary.saved_nbytes + scene.summary.recomputed_nbytes
    frames, headers, boxes = [], [], []
    for box in placement.boxes:
        if box.kind == "frame":
            frames.append(draw_frame(scene.groups[box.ref], box, theme))
            headers.append(draw_header(scene.groups[box.ref], box, theme, chevrons=chevrons))
        elif box.kind == "group":
            group = scene.groups[box.ref]
            boxes.append(draw_group(group, box, theme, all_nbytes, chevrons=chevrons))
        elif box.ref in opened:
            boxes.append(_draw_opened(scene, opened[box.ref], box, theme))
        else:
            middle, right = box.y + box.height / 2, box.x + box.width
            node = scene.nodes[box.ref]
            boxes.append(draw_node(node, box, theme))
            if not node.compact:
                corner = (box.x + 10, box.y + box.height - 4, box.width - 20)
                boxes.append(byte_bar(corner, node.saved_nbytes, 0, all_nbytes, theme))
            boxes.append(draw_saved_tensors(saved.get(box.ref, ()), right, middle, theme))
            boxes.append(draw_parameters(parameters.get(box.ref, ()), box.x, middle, theme))
    labels = [_label(scene, line, theme) for line in placement.lines if line.label]
    lines = _draw_lines(scene, placement, theme)
    arrow = draw_write_arrow(scene, placement, saved, theme)
    marks = list(draw_marks(scene, placement, theme))
    detached = list(draw_detaches(scene, placement, theme))
    drawn = [*frames, lines, *headers, *boxes, *marks, *labels, *detached]
    return "\n".join([*drawn, *filter(None, [arrow])])


def _opened_pictures(scene: Scene) -> dict[int, SceneCompiledPicture]:
    """Return the pictures that are drawn in the place of nodes, by node."""
    picture_of = {picture.region: picture for picture in scene.compiled_pictures if picture.initial}
    return {
        node: picture_of[region.index]
        for region in scene.compiled_regions
        for node in region.nodes
        if region.index in picture_of
    }


def _draw_opened(scene: Scene, picture: SceneCompiledPicture, box: Box, theme: Theme) -> str:
    """Return the box of a compiled region's node with the picture of the region."""
    outline = svg.stroke(theme.backward, 1.1, fill=theme.page)
    rect = svg.rect(box.x, box.y, box.width, box.height, radius=6, style=outline)
    x, y = svg.num(box.x + PICTURE_MARGIN), svg.num(box.y + PICTURE_MARGIN)
    marks = draw_picture(picture, scene.compiled_marks, scene.compiled_items, theme)
    return f'{rect}<g transform="translate({x} {y})">{marks}</g>'


def _draw_lines(scene: Scene, placement: Placement, theme: Theme) -> str:
    """Return all lines as one path per color, which keeps the file of a large graph small."""
    on_path = {i for i, edge in enumerate(scene.edges) if edge.on_path}
    parts = []
    for marked, color, width in ((False, theme.edge, EDGE_WIDTH), (True, theme.path, PATH_WIDTH)):
        lines = [line for line in placement.lines if _is_marked(scene, line, on_path) == marked]
        if lines:
            paths = "".join(svg.polyline(line.points) for line in lines)
            size = 9.0 if marked else 6.0
            heads = "".join(svg.arrow_head(line.points, size) for line in lines if line.arrow)
            heads += "".join(_dot(line) for line in lines if line.stub and not line.arrow)
            parts.append(svg.path(paths, svg.stroke(color, width)))
            parts.append(svg.path(heads, f'fill="{color}"'))
    return "\n".join(parts)


def _is_marked(scene: Scene, line: Line, on_path: set[int]) -> bool:
    if not on_path:
        return False
    return not on_path.isdisjoint(scene.groups[line.group].links[line.link].edges)


def _dot(line: Line) -> str:
    """Return the dot at the end of a stub."""
    x, y = line.points[-1]
    return f"M{svg.num(x - 2)} {svg.num(y)}a2 2 0 1 0 4 0a2 2 0 1 0 -4 0Z"


def _label(scene: Scene, line: Line, theme: Theme) -> str:
    """Return the number of views that are folded into a line."""
    assert line.label is not None
    x, y = line.label
    label = plural(scene.groups[line.group].links[line.link].views, "view")
    width = text_width(label, 9.5) + 2
    background = f'fill="{theme.page}"'
    return svg.rect(x - width / 2, y - 7, width, 13, radius=3, style=background) + svg.text(
        x, y + 3.2, label, fill=theme.text2, size=9.5, anchor="middle"
    )
