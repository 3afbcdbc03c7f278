"""Groups in SVG, closed and open."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from autogradviz.analysis.formatting import format_bytes
from autogradviz.render.svg import primitives as pen
from autogradviz.render.svg.theme import Theme, mix
from autogradviz.scene.formatting import plural
from autogradviz.scene.groups import header_note
from autogradviz.scene.layout.sizes import GROUP_HEIGHT
from autogradviz.scene.text_metrics import text_width

if TYPE_CHECKING:
    from autogradviz.scene.layout.coordinates import Box
    from autogradviz.scene.schema import SceneGroup

PILL_HEIGHT: Final = 16.0


def _group_tooltip(group: SceneGroup) -> str:
    words = [group.path or group.label, group.type_name, plural(group.node_count, "node")]
    if group.nbytes:
        words.append(f"{format_bytes(group.nbytes)} saved")
    return "\n".join(word for word in words if word)


def draw_group(group: SceneGroup, box: Box, theme: Theme) -> str:
    """Return a closed group."""
    dash = "5 3" if group.checkpointed else ""
    color = theme.recompute if group.checkpointed else theme.line
    fill = mix(theme.recompute, 0.06, theme.page) if group.checkpointed else theme.page
    x, y, base = box.x, box.y, box.y + GROUP_HEIGHT / 2 + 4
    parts = [f"<title>{pen.escape(_group_tooltip(group))}</title>"]
    for i in (2, 1) if group.repeat > 1 else ():
        style = pen.stroke(mix(color, 0.7, theme.page), dash=dash, fill=theme.page)
        width = box.width - 8 * i
        parts.append(pen.rect(x + 4 * i, y + 3 * i, width, GROUP_HEIGHT, radius=6, style=style))
    outline = pen.stroke(color, 1.4 if dash else 1.1, dash=dash, fill=fill)
    parts.append(pen.rect(x, y, box.width, GROUP_HEIGHT, radius=6, style=outline))
    parts.append(pen.chevron(x + 10, y + GROUP_HEIGHT / 2, theme.text2, is_open=False))
    parts.append(pen.text(x + 20, base, group.label, fill=theme.text, size=12.5, weight=600))
    at = x + 20 + text_width(group.label, 12.5, bold=True) + 8
    if group.repeat > 1:
        words = f"×{group.repeat} identical"
        width = text_width(words, 10.0) + 14
        style = pen.stroke(theme.line, fill=theme.surface)
        parts.append(pen.rect(at, y + 6, width, PILL_HEIGHT, radius=8, style=style))
        parts.append(pen.text(at + 7, y + 17.6, words, fill=theme.text2, size=10))
        at += width + 6
    if group.checkpointed:
        parts.append(_recompute_pill(at, y + 6, str(group.recomputes), theme))
    words = plural(group.node_count, "node")
    right = x + box.width - 9
    parts.append(pen.text(right, base, words, fill=theme.text2, size=10.5, anchor="end"))
    if group.error:
        parts.append(pen.fail_disc(x + box.width, y, theme.mutation, theme.page))
    return f"<g>{''.join(parts)}</g>"


def _recompute_pill(x: float, y: float, words: str, theme: Theme) -> str:
    width = 24 + text_width(words, 10.0, bold=True)
    style = pen.stroke(theme.recompute, fill=theme.page)
    return (
        pen.rect(x, y, width, PILL_HEIGHT, radius=8, style=style)
        + pen.recompute_glyph(x + 10, y + 8, theme.recompute)
        + pen.text(x + 18, y + 11.6, words, fill=theme.recompute, size=10, weight=700)
    )


def draw_frame(group: SceneGroup, box: Box, theme: Theme) -> str:
    """Return an open group: frame and header."""
    x, y = box.x, box.y
    if group.checkpointed and group.repeat == 1:
        fill = mix(theme.recompute, 0.04, theme.page)
        style = pen.stroke(theme.recompute, 1.5, dash="7 4", fill=fill)
    else:
        style = pen.stroke(
            mix(theme.text, 0.24, theme.page), fill=mix(theme.text, 0.012, theme.page)
        )
    label_x = x + 30
    parts = [
        pen.rect(x, y, box.width, box.height, radius=8, style=style),
        pen.chevron(x + 14, y + 18, theme.text2, is_open=True),
        pen.text(label_x, y + 22, group.label, fill=theme.text, size=12.5, weight=650),
    ]
    note = header_note(group)
    if note:
        at = label_x + text_width(group.label, 12.5, bold=True) + 8
        parts.append(pen.text(at, y + 22, note, fill=theme.text2, size=11.5))
    if group.checkpointed and group.recomputes and group.repeat == 1:
        words = plural(group.recomputes, "recompute")
        width = 24 + text_width(words, 10.0, bold=True)
        parts.append(_recompute_pill(x + box.width - width - 12, y + 9, words, theme))
    return "".join(parts)
