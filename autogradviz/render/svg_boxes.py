"""Nodes, groups, chips and pennants in SVG."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autogradviz.render import svg_pen as pen
from autogradviz.render.svg_theme import Theme, mix
from autogradviz.scene.boxes import CHIP_GAP, TAG_GAP, TAG_SIZE
from autogradviz.scene.groups import header_note
from autogradviz.scene.measure import GROUP_HEIGHT
from autogradviz.scene.widths import text_width
from autogradviz.scene.words import chip_words, format_bytes, plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from autogradviz.scene.place import Box
    from autogradviz.scene.schema import Chip, Pennant, SceneGroup, SceneNode

TAG_HEIGHT = 19.0
PILL_HEIGHT = 16.0


def draw_node(node: SceneNode, box: Box, theme: Theme) -> str:
    """Return a node's box and its tooltip."""
    title = f"<title>{pen.escape(_node_tooltip(node))}</title>"
    body = _compact(node, box, theme) if node.compact else _two_parts(node, box, theme)
    return f"<g>{title}{body}</g>"


def _node_tooltip(node: SceneNode) -> str:
    lines = [f"{node.op} | {node.name}" if node.op else node.name]
    if node.module:
        lines.append(node.module)
    if node.filename:
        lines.append(f"{node.filename}:{node.lineno}")
    if node.shape:
        lines.append(f"output {node.shape}")
    states = {"not_run": "not reached by backward", "failed": "failed", "ran": "ran"}
    times = f" {node.runs} times" if node.runs > 1 else ""
    lines.append(states[node.state] + times)
    return "\n".join(lines)


def _compact(node: SceneNode, box: Box, theme: Theme) -> str:
    x, y, r = box.x + box.width / 2, box.y + box.height / 2, box.width / 2
    ran = node.state == "ran"
    fill = mix(theme.backward, theme.tint2, theme.page) if ran else theme.page
    line = _node_colour(node, theme)
    return (
        f'<circle cx="{pen.num(x)}" cy="{pen.num(y)}" r="{pen.num(r)}"'
        f" {pen.stroke(line, 1.1, fill=fill)}/>"
        + pen.path(
            f"M{pen.num(x - 3.5)} {pen.num(y)}h7M{pen.num(x)} {pen.num(y - 3.5)}v7",
            pen.round_stroke(line, 1.5),
        )
        + pen.text(x + r + TAG_GAP, y + 4, node.name, fill=theme.text2, size=TAG_SIZE)
    )


def _node_colour(node: SceneNode, theme: Theme) -> str:
    colour = theme.mutation if node.error or node.state == "failed" else theme.backward
    return mix(colour, 0.6, theme.page) if node.state == "not_run" and not node.error else colour


def _two_parts(node: SceneNode, box: Box, theme: Theme) -> str:
    """Return a box: the forward op on the left, the backward node on the right."""
    x, y, width, height = box.x, box.y, box.width, box.height
    red = node.error or node.state == "failed"
    colour = theme.mutation if red else theme.backward
    line = _node_colour(node, theme)
    split, middle, base = x + node.op_width, y + height / 2, y + height / 2 + 4
    parts = []
    if red:
        halo = pen.stroke(mix(colour, 0.25, theme.page), 4)
        parts.append(pen.rect(x - 2, y - 2, width + 4, height + 4, radius=8, style=halo))
    parts.append(pen.rect(x, y, width, height, radius=6, style=f'fill="{theme.page}"'))
    if node.state != "not_run" or red:
        tint = mix(colour, theme.tint2, theme.page)
        parts.append(_right_part(node, box, tint))
    if node.op:
        inner = pen.stroke(mix(line, 0.6, theme.page))
        parts.append(pen.path(f"M{pen.num(split)} {pen.num(y)}v{pen.num(height)}", inner))
        parts.append(_op_words(node, x, base, theme))
    outline = pen.stroke(line, 1.6 if red else 1.1)
    parts.append(pen.rect(x, y, width, height, radius=6, style=outline))
    centre = (split + x + width) / 2
    parts.append(pen.text(centre, base, node.name, fill=colour, weight=600, anchor="middle"))
    if red:
        parts.append(pen.fail_disc(x + width, middle - height / 2, theme.mutation, theme.page))
    return "".join(parts)


def _right_part(node: SceneNode, box: Box, fill: str) -> str:
    """Return the tinted part: round on the right, on the left only where it is the whole box."""
    left = 0 if node.op else 6
    x0, y0 = pen.num(box.x + node.op_width + left), pen.num(box.y)
    right, rise = pen.num(box.x + box.width - 6), pen.num(box.height - 12)
    d = f"M{x0} {y0}H{right}q6 0 6 6v{rise}q0 6 -6 6H{x0}"
    d += f"q-6 0 -6 -6v-{rise}q0 -6 6 -6Z" if left else "Z"
    return pen.path(d, f'fill="{fill}"')


def _op_words(node: SceneNode, x: float, base: float, theme: Theme) -> str:
    middle = x + node.op_width / 2
    if not node.writes:
        colour = theme.text2 if node.state == "not_run" else theme.text
        return pen.text(middle, base, node.op, fill=colour, anchor="middle")
    width = text_width(node.op, bold=True)
    return pen.pencil(middle - width / 2 - 8, base, theme.mutation) + pen.text(
        middle + 8, base, node.op, fill=theme.mutation, weight=600, anchor="middle"
    )


def draw_chips(chips: Sequence[Chip], x: float, middle: float, theme: Theme) -> str:
    """Return the chips of one node, from right of its box at ``x``."""
    colours = {
        "held": theme.saved,
        "released": theme.saved,
        "recomputed": theme.recompute,
        "broken": theme.mutation,
    }
    parts = []
    x += TAG_GAP
    for chip in chips:
        if chip.width:
            parts.append(_chip(chip, x, middle - TAG_HEIGHT / 2, theme, colours[chip.state]))
            x += chip.width + CHIP_GAP
    hidden = sum(not chip.width for chip in chips)
    if hidden:
        parts.append(pen.text(x, middle + 4, f"+{hidden}", fill=theme.text2, size=TAG_SIZE))
    return "".join(parts)


def _chip(chip: Chip, x: float, y: float, theme: Theme, colour: str) -> str:
    slot, version, nbytes = chip_words(chip)
    border = pen.stroke(mix(colour, 0.55, theme.page), fill=mix(colour, theme.tint, theme.page))
    kept = {"recomputed": "given up, recomputed by its checkpoint", "broken": "mutated"}
    tip = f"{chip.slot} {chip.shape} {chip.dtype}\n{kept.get(chip.state, chip.state)}"
    return (
        f"<g><title>{pen.escape(tip)}</title>"
        + pen.rect(x, y, chip.width, TAG_HEIGHT, radius=3, style=border)
        + pen.rect(x, y, 4, TAG_HEIGHT, radius=1.5, style=f'fill="{colour}"')
        + f'<text x="{pen.num(x + 9)}" y="{pen.num(y + 13.1)}" font-size="11" fill="{theme.text}">'
        + f"{pen.escape(slot)}"
        + (f'<tspan font-weight="700" fill="{colour}">{version}</tspan>' if version else "")
        + f'<tspan fill="{theme.text2}">{nbytes}</tspan></text></g>'
    )


def draw_pennants(pennants: Sequence[Pennant], x: float, middle: float, theme: Theme) -> str:
    """Return the pennants of one node, up to left of its box at ``x``."""
    parts = []
    x -= TAG_GAP
    for pennant in pennants:
        if pennant.width:
            parts.append(_pennant(pennant, x - pennant.width, middle, theme))
            x -= pennant.width + CHIP_GAP
    return "".join(parts)


def _pennant(pennant: Pennant, x: float, middle: float, theme: Theme) -> str:
    y, right = middle - TAG_HEIGHT / 2, x + pennant.width
    style = pen.stroke(
        mix(theme.leaf, 0.6, theme.page), fill=mix(theme.leaf, theme.tint, theme.page)
    )
    d = (
        f"M{pen.num(x + 3)} {pen.num(y)}H{pen.num(right - 6)}l6 9.5l-6 9.5H{pen.num(x + 3)}"
        "q-3 0 -3 -3v-13q0 -3 3 -3Z"
    )
    marks = {"ok": pen.tick, "none": pen.empty_set}
    grads = {"ok": "has its gradient", "none": "gradient is None", "unknown": "no backward ran"}
    mark = marks.get(pennant.grad)
    tip = f"{pennant.name or 'input'} {pennant.shape}\n{grads[pennant.grad]}"
    tip += f"\nused by {pennant.shared} nodes" if pennant.shared > 1 else ""
    return (
        f"<g><title>{pen.escape(tip)}</title>"
        + pen.path(d, f'{style} stroke-linejoin="round"')
        + f'<text x="{pen.num(x + 7)}" y="{pen.num(y + 13.1)}" font-size="11">'
        + f'<tspan font-weight="600" fill="{theme.leaf}">{pen.escape(pennant.label)} </tspan>'
        + f'<tspan fill="{theme.text2}">{pennant.shape}</tspan></text>'
        + (mark(right - 18, middle, theme.leaf) if mark else "")
        + "</g>"
    )


def _group_tooltip(group: SceneGroup) -> str:
    words = [group.path or group.label, group.type_name, plural(group.node_count, "node")]
    if group.nbytes:
        words.append(f"{format_bytes(group.nbytes)} saved")
    return "\n".join(word for word in words if word)


def draw_group(group: SceneGroup, box: Box, theme: Theme) -> str:
    """Return a closed group."""
    dash = "5 3" if group.checkpointed else ""
    colour = theme.recompute if group.checkpointed else theme.line
    fill = mix(theme.recompute, 0.06, theme.page) if group.checkpointed else theme.page
    x, y, base = box.x, box.y, box.y + GROUP_HEIGHT / 2 + 4
    parts = [f"<title>{pen.escape(_group_tooltip(group))}</title>"]
    for i in (2, 1) if group.repeat > 1 else ():
        style = pen.stroke(mix(colour, 0.7, theme.page), dash=dash, fill=theme.page)
        width = box.width - 8 * i
        parts.append(pen.rect(x + 4 * i, y + 3 * i, width, GROUP_HEIGHT, radius=6, style=style))
    outline = pen.stroke(colour, 1.4 if dash else 1.1, dash=dash, fill=fill)
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
