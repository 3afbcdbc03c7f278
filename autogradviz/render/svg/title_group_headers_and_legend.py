"""Title, groups with their headers, and legend of a graph as SVG."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from autogradviz.analysis.formatting import plural, short_path
from autogradviz.render.svg import themes_and_primitives as svg
from autogradviz.render.svg.marks_of_findings import marked_boxes
from autogradviz.render.svg.themes_and_primitives import Theme, mix
from autogradviz.scene.build_groups import closed_note, header_note, saved_note
from autogradviz.scene.label_text_and_width import elide, text_width
from autogradviz.scene.layout.group_sizes_and_main_column import GROUP_HEIGHT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from autogradviz.scene.layout.coordinates import Box, Placement
    from autogradviz.scene.schema import Scene, SceneFinding, SceneGroup


# --- groups in SVG: closed boxes and open frames --------------------------------------------------


PILL_HEIGHT: Final = 16.0
BYTES_WIDTH: Final = 160.0
"""Width of the bar of a box that saves all bytes."""


def _group_tooltip(group: SceneGroup) -> str:
    lines = [group.path or group.label, group.type_name, closed_note(group)]
    return "\n".join(line for line in lines if line)


def draw_group(
    group: SceneGroup, box: Box, theme: Theme, all_nbytes: int, *, chevrons: bool
) -> str:
    """Return a closed group, with a bar for its share of the bytes that all nodes save."""
    left = box.x + (20 if chevrons else 10)
    dash = "5 3" if group.checkpointed else ""
    color = theme.recompute if group.checkpointed else mix(theme.text, 0.42, theme.page)
    fill = mix(theme.recompute if group.checkpointed else theme.text, 0.06, theme.page)
    x, y, base = box.x, box.y, box.y + GROUP_HEIGHT / 2 + 4
    parts = [f"<title>{svg.escape(_group_tooltip(group))}</title>"]
    for i in (2, 1) if group.repeat > 1 else ():
        style = svg.stroke(mix(color, 0.7, theme.page), dash=dash, fill=theme.page)
        width = box.width - 8 * i
        parts.append(svg.rect(x + 4 * i, y + 3 * i, width, GROUP_HEIGHT, radius=6, style=style))
    outline = svg.stroke(color, 1.4 if dash else 1.1, dash=dash, fill=fill)
    parts.append(svg.rect(x, y, box.width, GROUP_HEIGHT, radius=6, style=outline))
    if chevrons:
        parts.append(svg.chevron(x + 10, y + GROUP_HEIGHT / 2, theme.text2, is_open=False))
    parts.append(svg.text(left, base, group.label, fill=theme.text, size=12.5, weight=600))
    at = left + text_width(group.label, 12.5, bold=True) + 8
    if group.repeat > 1:
        repeat = f"×{group.repeat:,} same ops"
        width = text_width(repeat, 10.0) + 14
        style = svg.stroke(theme.line, fill=theme.surface)
        parts.append(svg.rect(at, y + 6, width, PILL_HEIGHT, radius=8, style=style))
        parts.append(svg.text(at + 7, y + 17.6, repeat, fill=theme.text2, size=10))
        at += width + 6
    if group.kind == "compiled":
        parts.append(svg.text(at, base, group.type_name, fill=theme.text2, size=10.5))
    if group.checkpointed:
        parts.append(_recompute_pill(at, y + 6, str(group.recomputes), theme))
    count = closed_note(group)
    right = x + box.width - 9
    parts.append(svg.text(right, base, count, fill=theme.text, size=10.5, anchor="end"))
    corner = (x + 10, y + GROUP_HEIGHT - 4, box.width - 20)
    parts.append(byte_bar(corner, group.nbytes, group.recomputed_nbytes, all_nbytes, theme))
    if group.error:
        parts.append(svg.fail_disc(x + box.width, y, theme.mutation, theme.page))
    return f"<g>{''.join(parts)}</g>"


def byte_bar(
    corner: tuple[float, float, float], saved: int, recomputed: int, all_nbytes: int, theme: Theme
) -> str:
    """Return the bar of saved bytes at x, y and at most as wide, on one scale for all boxes."""
    x, y, room = corner
    width = min(room, BYTES_WIDTH * (saved + recomputed) / (all_nbytes or 1))
    if width < 1:
        return ""
    first = width * saved / (saved + recomputed)
    bars = ((x, first, theme.saved), (x + first, width - first, theme.recompute))
    return "".join(
        svg.rect(at, y, wide, 2.5, radius=0, style=f'fill="{hue}"')
        for at, wide, hue in bars
        if wide
    )


def _recompute_pill(x: float, y: float, label: str, theme: Theme) -> str:
    width = 24 + text_width(label, 10.0, bold=True)
    style = svg.stroke(theme.recompute, fill=theme.page)
    return (
        svg.rect(x, y, width, PILL_HEIGHT, radius=8, style=style)
        + svg.recompute_icon(x + 10, y + 8, theme.recompute)
        + svg.text(x + 18, y + 11.6, label, fill=theme.recompute, size=10, weight=700)
    )


def _frame_fill(group: SceneGroup, theme: Theme) -> str:
    if group.checkpointed and group.repeat == 1:
        return mix(theme.recompute, 0.04, theme.page)
    return mix(theme.text, 0.012, theme.page)


def draw_detaches(scene: Scene, placement: Placement, theme: Theme) -> Iterator[str]:
    """Yield a broken arrow above each box that reads a detached value from another box.

    It is above the frame whose header would be under it.
    """
    drawn = {(box.kind, box.ref): box for box in placement.boxes if box.kind != "frame"}

    def box_of(node: int) -> Box | None:
        found, group = drawn.get(("node", node)), scene.nodes[node].group
        while found is None and group > 0:
            found, group = drawn.get(("group", group)), scene.groups[group].parent
        return found

    frames = [box for box in placement.boxes if box.kind == "frame"]
    labels: dict[str, tuple[Box, dict[str, None]]] = {}
    for each in scene.detaches:
        reader = box_of(each.reader)
        if reader is not None and (each.producer < 0 or box_of(each.producer) is not reader):
            _, lines = labels.setdefault(f"{reader.kind} {reader.ref}", (reader, {}))
            lines[f"detach, line {each.lineno}"] = None
    for reader, lines in labels.values():
        text = " · ".join(lines)
        width = text_width(text, 10) + 8
        above: Box | None = reader
        while above is not None:
            box = above
            x, y = box.x + box.width - 20, box.y - 11
            left = x - width if box.kind == "frame" else x
            under = (each for each in frames if _is_header_at(each, box, left, left + width))
            above = next(under, None)
        line = svg.path(
            f"M{svg.num(x)} {svg.num(y + 10)}v-9", svg.stroke(theme.text2, 1.4, dash="3 2")
        )
        cross = f"M{svg.num(x - 3)} {svg.num(y - 3)}l6 6M{svg.num(x + 3)} {svg.num(y - 3)}l-6 6"
        yield (
            line
            + svg.path(cross, svg.round_stroke(theme.text2, 1.5))
            + svg.text(x + 8 if left == x else left, y + 3.5, text, fill=theme.text2, size=10)
        )


def _is_header_at(frame: Box, box: Box, left: float, right: float) -> bool:
    """Return whether the label of a box is on the header of a frame around it."""
    within = frame.y < box.y - 5 < frame.y + 30
    return within and frame.x < right and frame.x + frame.width > left


def draw_frame(group: SceneGroup, box: Box, theme: Theme) -> str:
    """Return the frame of an open group, without its header."""
    fill = _frame_fill(group, theme)
    if group.checkpointed and group.repeat == 1:
        style = svg.stroke(theme.recompute, 1.5, dash="7 4", fill=fill)
    else:
        style = svg.stroke(mix(theme.text, 0.24, theme.page), fill=fill)
    return svg.rect(box.x, box.y, box.width, box.height, radius=8, style=style)


def draw_header(group: SceneGroup, box: Box, theme: Theme, *, chevrons: bool) -> str:
    """Return the header of an open group, drawn over the lines that cross it."""
    x, y, label_x = box.x, box.y, box.x + (30 if chevrons else 14)
    note = header_note(group)
    at = label_x + text_width(group.label, 12.5, bold=True) + 8
    end = at + (text_width(note, 11.5) + 4 if note else -4)
    cover = f'fill="{_frame_fill(group, theme)}"'
    parts = [
        svg.rect(x + 10, y + 10, end - x - 10, 16, radius=0, style=cover),
        svg.chevron(x + 14, y + 18, theme.text2, is_open=True) if chevrons else "",
        svg.text(label_x, y + 22, group.label, fill=theme.text, size=12.5, weight=650),
    ]
    if note:
        parts.append(svg.text(at, y + 22, note, fill=theme.text2, size=11.5))
    right = x + box.width - 12
    if group.checkpointed and group.recomputes and group.repeat == 1:
        label = plural(group.recomputes, "recompute")
        width = 24 + text_width(label, 10.0, bold=True)
        right -= width
        parts.append(_recompute_pill(right, y + 9, label, theme))
        right -= 8
    saved = saved_note(group)
    width = text_width(saved, 10.5)
    if saved and right - width > max(at + text_width(note, 11.5) + 16, x + box.width / 2):
        parts.append(svg.rect(right - width - 3, y + 10, width + 6, 16, radius=0, style=cover))
        parts.append(svg.text(right, y + 22, saved, fill=theme.text2, size=10.5, anchor="end"))
    return "".join(parts)


# --- header of an SVG: title, subtitle, and a banner with the first finding -----------------------


LINE: Final = 18.0
MONO_ADVANCE: Final = 0.61
MAX_FIX_LINES: Final = 6


@dataclass(slots=True)
class Page:
    """A page that is filled from top to bottom. ``y`` is the first free position."""

    width: float
    margin: float
    theme: Theme
    y: float = 0.0


def draw_title(page: Page, scene: Scene, subtitle: str) -> str:
    """Return title and subtitle."""
    width = page.width - 2 * page.margin
    page.y = page.margin + 6
    parts = []
    for line in wrap(scene.summary.title, width, 19, bold=True):
        parts.append(svg.text(page.margin, page.y, line, fill=page.theme.text, size=19, weight=650))
        page.y += 24
    for line in wrap(subtitle, width, 11.5):
        parts.append(svg.text(page.margin, page.y, line, fill=page.theme.text2, size=11.5))
        page.y += LINE
    page.y += 8
    return "\n".join(parts)


def draw_banner(page: Page, finding: SceneFinding) -> str:
    """Return a finding's title, culprit, victim and fix."""
    theme, left, top = page.theme, page.margin, page.y
    width = page.width - 2 * left
    lines = []
    page.y += 22
    for line in wrap(finding.title, width - 32, 13, bold=True):
        lines.append(svg.text(left + 16, page.y, line, fill=theme.mutation, size=13, weight=650))
        page.y += LINE
    for label, filename, lineno, code in (
        ("Cause", finding.culprit_file, finding.culprit_line, finding.culprit_text),
        ("Fails", finding.victim_file, finding.victim_line, finding.victim_text),
    ):
        if filename:
            location = f"{elide(short_path(filename), 44)}:{lineno}"
            lines.append(_code_row(page, label, f"{location}  {code.strip()}"))
    fix = [line for line in finding.fix.splitlines() if line.strip()]
    for i, line in enumerate(fix[:MAX_FIX_LINES]):
        lines.append(_code_row(page, "" if i else "Fix", line))
    height = page.y - top
    tint = f'fill="{mix(theme.mutation, 0.06, theme.page)}"'
    background = svg.rect(left, top, width, height, radius=6, style=tint)
    background += svg.rect(left, top, 4, height, radius=2, style=f'fill="{theme.mutation}"')
    page.y += 24
    return background + "\n".join(lines)


def _code_row(page: Page, label: str, code: str) -> str:
    """Return a label and a line of code, truncated to the width of the page."""
    left = page.margin + 16
    limit = int((page.width - 2 * page.margin - 90) / (11 * MONO_ADVANCE))
    truncated = code if len(code) <= limit else f"{code[: limit - 1]}…"
    row = svg.text(left, page.y, label, fill=page.theme.text2, size=11, weight=600)
    row += (
        f'<text x="{svg.num(left + 48)}" y="{svg.num(page.y)}" font-size="11"'
        f' font-family="{svg.MONO}" fill="{page.theme.text}" xml:space="preserve">'
        f"{svg.escape(truncated)}</text>"
    )
    page.y += LINE
    return row


def draw_empty_message(page: Page) -> str:
    """Return a message for a recording without nodes."""
    message = (
        "No autograd node was seen: call backward() while recording, or keep its result alive."
    )
    page.y += 12
    line = svg.text(page.margin, page.y, message, fill=page.theme.text)
    page.y += 32
    return line


def wrap(text: str, width: float, size: float, *, bold: bool = False) -> list[str]:
    """Return a text in lines of at most a width. A longer word gets its own line."""
    lines: list[str] = []
    for word in text.split():
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and text_width(longer, size, bold=bold) <= width:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


# --- legend of an SVG: the icons, colors and lines that the picture uses --------------------------


SWATCH: Final = 34.0  # from the left of an icon to its text

Icon: TypeAlias = "Callable[[float, float], str]"  # of x and y


def draw_legend(page: Page, scene: Scene, placement: Placement) -> str:
    """Return the entries for everything visible."""
    theme = page.theme
    x, right = page.margin, page.width - page.margin
    rule = svg.path(f"M{svg.num(x)} {svg.num(page.y)}H{svg.num(right)}", svg.stroke(theme.line))
    page.y += 20
    parts = [rule]
    for label, icon in _entries(scene, placement, theme):
        width = SWATCH + text_width(label, 11) + 18
        if x > page.margin and x + width > right:
            x = page.margin
            page.y += 22
        parts.append(icon(x, page.y))
        parts.append(svg.text(x + SWATCH, page.y + 4, label, fill=theme.text2, size=11))
        x += width
    page.y += 24
    return "\n".join(parts)


def _entries(scene: Scene, placement: Placement, theme: Theme) -> list[tuple[str, Icon]]:
    visible = {box.ref for box in placement.boxes if box.kind == "node"}
    groups = [scene.groups[box.ref] for box in placement.boxes if box.kind != "node"]
    nodes = [scene.nodes[index] for index in visible]
    saved = {badge.state for badge in scene.saved_badges if badge.node in visible}
    grads = {badge.grad for badge in scene.parameter_badges if badge.node in visible}
    red, purple = theme.mutation, theme.recompute
    marks = [hint for _, hint in marked_boxes(scene, placement)]
    marked = theme.path if all(marks) else red
    not_finite = "nan" in grads or any(n.not_finite for n in nodes)
    entries: list[tuple[bool, str, Icon]] = [
        (
            any(n.state != "not_run" for n in nodes),
            "forward op, backward node",
            partial(_box, theme, theme.backward, theme.tint2),
        ),
        (
            any(n.state == "not_run" for n in nodes),
            "backward not run",
            partial(_box, theme, mix(theme.backward, 0.6, theme.page), 0.0),
        ),
        (bool(saved & {"held", "released"}), "saved", partial(_saved, theme, theme.saved)),
        ("freed" in saved, "freed, not recomputed", partial(_saved, theme, theme.text2)),
        ("recomputed" in saved, "freed, recomputed", partial(_saved, theme, purple)),
        (bool(saved & {"broken", "stale"}), "changed since saved", partial(_saved, theme, red)),
        (bool(grads), "parameter", partial(_parameter, theme)),
        ("none" in grads, "got no gradient", _at(svg.empty_set, 12, 0, theme.leaf)),
        ("zero" in grads, "grad is zero", _at(svg.zero, 12, 0, red)),
        (not_finite, "NaN or infinite", _at(svg.not_finite, 12, 0, red)),
        (any(n.hooks for n in nodes), "hook", _at(svg.hook_disc, 16, 0, theme.text2, theme.page)),
        (any(g.checkpointed for g in groups), "checkpoint region", partial(_dashed, theme)),
        (any(n.error for n in nodes), "fails here", _at(svg.fail_disc, 16, 0, red, theme.page)),
        (bool(marks), "in a finding", _at(svg.finding_disc, 16, 0, marked, theme.page)),
        (any(n.writes for n in nodes), "harmful write", _at(svg.pencil, 12, 5, red)),
        (
            any(n.wrote and not n.writes for n in nodes),
            "writes in place",
            _at(svg.pencil, 12, 5, theme.text2),
        ),
        (
            any(n.cloned for n in nodes),
            "cloned before a write",
            _at(svg.two_squares, 16, 0, purple),
        ),
        (any(e.on_path for e in scene.edges), "path from loss", partial(_arrow, theme.path, 2.6)),
        (bool(placement.lines), "gradient flows up", partial(_arrow, theme.edge, 1.2)),
        (any(line.stub for line in placement.lines), "continues far away", partial(_stub, theme)),
    ]
    return [(label, icon) for is_used, label, icon in entries if is_used]


def _at(icon: Callable[..., str], dx: float, dy: float, *colors: str) -> Icon:
    """Return a primitive with its colors, shifted by an offset."""
    return lambda x, y: icon(x + dx, y + dy, *colors)


def _box(theme: Theme, line: str, tint: float, x: float, y: float) -> str:
    fill = mix(theme.backward, tint, theme.page)
    return (
        svg.path(
            f"M{svg.num(x + 10)} {svg.num(y - 6)}h14q3 0 3 3v6q0 3 -3 3h-14Z", f'fill="{fill}"'
        )
        + svg.rect(x, y - 6, 27, 12, radius=3, style=svg.stroke(line))
        + svg.path(f"M{svg.num(x + 10)} {svg.num(y - 6)}v12", svg.stroke(line))
    )


def _saved(theme: Theme, color: str, x: float, y: float) -> str:
    style = svg.stroke(mix(color, 0.55, theme.page), fill=mix(color, theme.tint, theme.page))
    bar = svg.rect(x + 4, y - 6, 4, 12, radius=1.5, style=f'fill="{color}"')
    return svg.rect(x + 4, y - 6, 22, 12, radius=3, style=style) + bar


def _parameter(theme: Theme, x: float, y: float) -> str:
    fill = mix(theme.leaf, theme.tint, theme.page)
    style = svg.stroke(mix(theme.leaf, 0.6, theme.page), fill=fill)
    return svg.path(f"M{svg.num(x + 1)} {svg.num(y - 6)}h20l6 6l-6 6h-20Z", style)


def _dashed(theme: Theme, x: float, y: float) -> str:
    style = svg.stroke(theme.recompute, 1.4, dash="4 2.5")
    return svg.rect(x, y - 6, 27, 12, radius=3, style=style)


def _arrow(color: str, width: float, x: float, y: float) -> str:
    points = [(x + 16, y + 7), (x + 16, y - 7)]
    line = svg.path(svg.polyline(points), svg.stroke(color, width))
    return line + svg.path(svg.arrow_head(points), f'fill="{color}"')


def _stub(theme: Theme, x: float, y: float) -> str:
    d = f"M{svg.num(x + 16)} {svg.num(y + 6)}v-9"
    dot = f'<circle cx="{svg.num(x + 16)}" cy="{svg.num(y - 3)}" r="2" fill="{theme.edge}"/>'
    return svg.path(d, svg.stroke(theme.edge, 1.2)) + dot
