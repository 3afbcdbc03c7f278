"""Groups in SVG: closed boxes and open frames."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from autogradviz.analysis.formatting import plural
from autogradviz.render.svg import primitives as svg
from autogradviz.render.svg.theme import Theme, mix
from autogradviz.scene.build_groups import closed_note, header_note, saved_note
from autogradviz.scene.layout.measure_groups import GROUP_HEIGHT
from autogradviz.scene.text_metrics import text_width

if TYPE_CHECKING:
    from autogradviz.scene.layout.coordinates import Box
    from autogradviz.scene.schema import SceneGroup

PILL_HEIGHT: Final = 16.0


def _group_tooltip(group: SceneGroup) -> str:
    lines = [group.path or group.label, group.type_name, closed_note(group)]
    return "\n".join(line for line in lines if line)


def draw_group(group: SceneGroup, box: Box, theme: Theme) -> str:
    """Return a closed group."""
    dash = "5 3" if group.checkpointed else ""
    color = theme.recompute if group.checkpointed else theme.line
    fill = mix(theme.recompute, 0.06, theme.page) if group.checkpointed else theme.page
    x, y, base = box.x, box.y, box.y + GROUP_HEIGHT / 2 + 4
    parts = [f"<title>{svg.escape(_group_tooltip(group))}</title>"]
    for i in (2, 1) if group.repeat > 1 else ():
        style = svg.stroke(mix(color, 0.7, theme.page), dash=dash, fill=theme.page)
        width = box.width - 8 * i
        parts.append(svg.rect(x + 4 * i, y + 3 * i, width, GROUP_HEIGHT, radius=6, style=style))
    outline = svg.stroke(color, 1.4 if dash else 1.1, dash=dash, fill=fill)
    parts.append(svg.rect(x, y, box.width, GROUP_HEIGHT, radius=6, style=outline))
    parts.append(svg.chevron(x + 10, y + GROUP_HEIGHT / 2, theme.text2, is_open=False))
    parts.append(svg.text(x + 20, base, group.label, fill=theme.text, size=12.5, weight=600))
    at = x + 20 + text_width(group.label, 12.5, bold=True) + 8
    if group.repeat > 1:
        repeat = f"×{group.repeat:,} identical"
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
    parts.append(svg.text(right, base, count, fill=theme.text2, size=10.5, anchor="end"))
    if group.error:
        parts.append(svg.fail_disc(x + box.width, y, theme.mutation, theme.page))
    return f"<g>{''.join(parts)}</g>"


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


def draw_frame(group: SceneGroup, box: Box, theme: Theme) -> str:
    """Return the frame of an open group, without its header."""
    fill = _frame_fill(group, theme)
    if group.checkpointed and group.repeat == 1:
        style = svg.stroke(theme.recompute, 1.5, dash="7 4", fill=fill)
    else:
        style = svg.stroke(mix(theme.text, 0.24, theme.page), fill=fill)
    return svg.rect(box.x, box.y, box.width, box.height, radius=8, style=style)


def draw_header(group: SceneGroup, box: Box, theme: Theme) -> str:
    """Return the header of an open group, drawn over the lines that cross it."""
    x, y, label_x = box.x, box.y, box.x + 30
    note = header_note(group)
    at = label_x + text_width(group.label, 12.5, bold=True) + 8
    end = at + (text_width(note, 11.5) + 4 if note else -4)
    cover = f'fill="{_frame_fill(group, theme)}"'
    parts = [
        svg.rect(x + 10, y + 10, end - x - 10, 16, radius=0, style=cover),
        svg.chevron(x + 14, y + 18, theme.text2, is_open=True),
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
