"""Nodes, chips and pennants in SVG.

Each is drawn once at the origin for all that look alike, and then moved to its place: a large
graph has few looks.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from autogradviz.analysis.formatting import short_path
from autogradviz.render.svg import primitives as pen
from autogradviz.render.svg.theme import Theme, mix
from autogradviz.scene.chips import TAG_SIZE
from autogradviz.scene.formatting import chip_words
from autogradviz.scene.layout.sizes import COMPACT_HEIGHT, NODE_HEIGHT
from autogradviz.scene.nodes import CHIP_GAP, TAG_GAP
from autogradviz.scene.text_metrics import text_width

if TYPE_CHECKING:
    from collections.abc import Sequence

    from autogradviz.scene.layout.coordinates import Box
    from autogradviz.scene.schema import Chip, GradState, Pennant, SceneNode

TAG_HEIGHT: Final = 19.0
LOOKS: Final = 4096


class _Look(NamedTuple):
    """What of a node can be seen."""

    op: str
    name: str
    op_width: float
    width: float
    ran: bool
    red: bool  # it failed, or a finding's victim
    writes: bool  # and broke something
    wrote: bool
    hooked: bool
    cloned: bool
    not_finite: bool
    recomputes: int


def draw_node(node: SceneNode, box: Box, theme: Theme) -> str:
    """Return a node's box and its tooltip."""
    red = node.error or node.state == "failed"
    look = _Look(
        node.op,
        node.name,
        node.op_width,
        box.width,
        node.state == "ran",
        red,
        node.writes,
        bool(node.writes or node.wrote),
        bool(node.hooks),
        bool(node.cloned),
        bool(node.not_finite),
        node.recomputes,
    )
    body = _compact(look, theme) if node.compact else _two_parts(look, theme)
    return (
        f'<g transform="translate({pen.num(box.x)} {pen.num(box.y)})">'
        f"<title>{pen.escape(_node_tooltip(node))}</title>{body}</g>"
    )


def _node_tooltip(node: SceneNode) -> str:
    lines = [f"{node.op} | {node.name}" if node.op else node.name]
    if node.module:
        lines.append(node.module)
    if node.filename:
        lines.append(f"{short_path(node.filename)}:{node.lineno}")
    if node.shape:
        lines.append(f"output {node.shape}")
    states = {"not_run": "not reached by backward", "failed": "failed", "ran": "ran"}
    times = f" {node.runs} times" if node.runs > 1 else ""
    lines.append(states[node.state] + times)
    lines += [f"wrote in place, {node.wrote}"] if node.wrote else []
    lines += [f"cloned before a write: {node.cloned}"] if node.cloned else []
    lines += [f"recomputed {node.recomputes}×"] if node.recomputes else []
    lines += [node.not_finite] if node.not_finite else []
    lines += [*node.hooks, *node.notes]
    return "\n".join(lines)


def _line_color(look: _Look, theme: Theme) -> str:
    if look.red:
        return theme.mutation
    return theme.backward if look.ran else mix(theme.backward, 0.6, theme.page)


@lru_cache(maxsize=LOOKS)
def _compact(look: _Look, theme: Theme) -> str:
    r, y = look.width / 2, COMPACT_HEIGHT / 2
    fill = mix(theme.backward, theme.tint2, theme.page) if look.ran else theme.page
    line = _line_color(look, theme)
    return (
        f'<circle cx="{pen.num(r)}" cy="{pen.num(y)}" r="{pen.num(r)}"'
        f" {pen.stroke(line, 1.1, fill=fill)}/>"
        + pen.path(
            f"M{pen.num(r - 3.5)} {pen.num(y)}h7M{pen.num(r)} {pen.num(y - 3.5)}v7",
            pen.round_stroke(line, 1.5),
        )
        + pen.text(2 * r + TAG_GAP, y + 4, look.name, fill=theme.text2, size=TAG_SIZE)
        + (pen.hook_disc(0, 0, theme.text2, theme.page) if look.hooked else "")
    )


@lru_cache(maxsize=LOOKS)
def _two_parts(look: _Look, theme: Theme) -> str:
    """Return a box: the forward op on the left, the backward node on the right."""
    width, height, split = look.width, NODE_HEIGHT, look.op_width
    color = theme.mutation if look.red else theme.backward
    line = _line_color(look, theme)
    parts = []
    if look.red:
        halo = pen.stroke(mix(color, 0.25, theme.page), 4)
        parts.append(pen.rect(-2, -2, width + 4, height + 4, radius=8, style=halo))
    parts.append(pen.rect(0, 0, width, height, radius=6, style=f'fill="{theme.page}"'))
    if look.ran or look.red:
        parts.append(_right_part(look, mix(color, theme.tint2, theme.page)))
    if look.op:
        inner = pen.stroke(mix(line, 0.6, theme.page))
        parts.append(pen.path(f"M{pen.num(split)} 0v{pen.num(height)}", inner))
        parts.append(_op_words(look, theme))
    outline = pen.stroke(line, 1.6 if look.red else 1.1)
    parts.append(pen.rect(0, 0, width, height, radius=6, style=outline))
    center, base = (split + width) / 2, height / 2 + 4
    parts.append(pen.text(center, base, look.name, fill=color, weight=600, anchor="middle"))
    if look.red:
        parts.append(pen.fail_disc(width, 0, theme.mutation, theme.page))
    if look.hooked:
        parts.append(pen.hook_disc(0, 0, theme.text2, theme.page))
    return "".join(parts) + _badges(look, theme)


def _badges(look: _Look, theme: Theme) -> str:
    """Return what hangs on a box's edges: recomputations, a clone, contents not finite."""
    right, bottom = look.width, NODE_HEIGHT
    back = f'fill="{theme.page}"'
    parts = []
    if look.recomputes:
        words = str(look.recomputes)
        width = text_width(words, 9.5, bold=True) + 16
        parts.append(pen.rect(3, bottom - 7, width, 14, radius=7, style=back))
        parts.append(pen.recompute_glyph(10, bottom, theme.recompute))
        parts.append(pen.text(16, bottom + 3.5, words, fill=theme.recompute, size=9.5, weight=600))
    if look.cloned:
        parts.append(pen.rect(right - 10, bottom - 7, 16, 14, radius=7, style=back))
        parts.append(pen.two_squares(right - 2, bottom, theme.recompute))
    if look.not_finite:
        parts.append(pen.rect(right - 26, -7, 16, 14, radius=7, style=back))
        parts.append(pen.not_finite(right - 22, 0, theme.mutation))
    return "".join(parts)


def _right_part(look: _Look, fill: str) -> str:
    """Return the tinted part: round on the right, on the left only where it is the whole box."""
    left = 0 if look.op else 6
    rise = pen.num(NODE_HEIGHT - 12)
    d = f"M{pen.num(look.op_width + left)} 0H{pen.num(look.width - 6)}"
    d += f"q6 0 6 6v{rise}q0 6 -6 6H{pen.num(look.op_width + left)}"
    d += f"q-6 0 -6 -6v-{rise}q0 -6 6 -6Z" if left else "Z"
    return pen.path(d, f'fill="{fill}"')


def _op_words(look: _Look, theme: Theme) -> str:
    middle, base = look.op_width / 2, NODE_HEIGHT / 2 + 4
    color = theme.text if look.ran or look.red else theme.text2
    if not look.wrote:
        return pen.text(middle, base, look.op, fill=color, anchor="middle")
    weight, color = (600, theme.mutation) if look.writes else (400, color)
    width = text_width(look.op, bold=look.writes)
    return pen.pencil(middle - width / 2 - 8, base, theme.mutation) + pen.text(
        middle + 8, base, look.op, fill=color, weight=weight, anchor="middle"
    )


def draw_chips(chips: Sequence[Chip], x: float, middle: float, theme: Theme) -> str:
    """Return the chips of one node, from right of its box at ``x``."""
    colors = {"recomputed": theme.recompute, "broken": theme.mutation}
    parts = []
    x += TAG_GAP
    for chip in chips:
        if chip.width:
            words = chip_words(chip.slot, chip.version, chip.seen_version, chip.nbytes)
            body = _chip(words, chip.width, colors.get(chip.state, theme.saved), theme)
            parts.append(_tag(x, middle, _chip_tooltip(chip), body))
            x += chip.width + CHIP_GAP
    hidden = sum(not chip.width for chip in chips)
    if hidden:
        parts.append(pen.text(x, middle + 4, f"+{hidden}", fill=theme.text2, size=TAG_SIZE))
    return "".join(parts)


def _tag(x: float, middle: float, tooltip: str, body: str) -> str:
    """Return a chip or pennant in its place."""
    return (
        f'<g transform="translate({pen.num(x)} {pen.num(middle - TAG_HEIGHT / 2)})">'
        f"<title>{pen.escape(tooltip)}</title>{body}</g>"
    )


def _chip_tooltip(chip: Chip) -> str:
    kept = {"recomputed": "given up, recomputed by its checkpoint", "broken": "changed since saved"}
    return f"{chip.slot} {chip.shape} {chip.dtype}\n{kept.get(chip.state, chip.state)}"


@lru_cache(maxsize=LOOKS)
def _chip(words: tuple[str, str, str], width: float, color: str, theme: Theme) -> str:
    slot, version, nbytes = words
    border = pen.stroke(mix(color, 0.55, theme.page), fill=mix(color, theme.tint, theme.page))
    return (
        pen.rect(0, 0, width, TAG_HEIGHT, radius=3, style=border)
        + pen.rect(0, 0, 4, TAG_HEIGHT, radius=1.5, style=f'fill="{color}"')
        + f'<text x="9" y="13.1" font-size="11" fill="{theme.text}">{pen.escape(slot)}'
        + (f'<tspan font-weight="700" fill="{color}">{version}</tspan>' if version else "")
        + f'<tspan fill="{theme.text2}">{nbytes}</tspan></text>'
    )


def draw_pennants(pennants: Sequence[Pennant], x: float, middle: float, theme: Theme) -> str:
    """Return the pennants of one node, up to left of its box at ``x``."""
    parts = []
    x -= TAG_GAP
    for pennant in pennants:
        if pennant.width:
            body = _pennant(pennant.label, pennant.shape, pennant.grad, pennant.width, theme)
            parts.append(_tag(x - pennant.width, middle, _pennant_tooltip(pennant), body))
            x -= pennant.width + CHIP_GAP
    return "".join(parts)


def _pennant_tooltip(pennant: Pennant) -> str:
    grads = {
        "ok": "has its gradient" + (f", norm {pennant.norm:.3g}" if pennant.norm else ""),
        "none": "gradient is None",
        "unknown": "no backward ran",
        "zero": "gradient is zero",
        "nan": "gradient is NaN or infinite",
    }
    users = f"\nused by {pennant.shared} nodes" if pennant.shared > 1 else ""
    return f"{pennant.name or 'input'} {pennant.shape}\n{grads[pennant.grad]}{users}"


@lru_cache(maxsize=LOOKS)
def _pennant(label: str, shape: str, grad: GradState, width: float, theme: Theme) -> str:
    fill = mix(theme.leaf, theme.tint, theme.page)
    style = pen.stroke(mix(theme.leaf, 0.6, theme.page), fill=fill)
    d = f"M3 0H{pen.num(width - 6)}l6 9.5l-6 9.5H3q-3 0 -3 -3v-13q0 -3 3 -3Z"
    marks = {"ok": pen.tick, "none": pen.empty_set, "zero": pen.zero, "nan": pen.not_finite}
    mark = marks.get(grad)
    hue = theme.mutation if grad in {"zero", "nan"} else theme.leaf
    return (
        pen.path(d, f'{style} stroke-linejoin="round"')
        + '<text x="7" y="13.1" font-size="11">'
        + f'<tspan font-weight="600" fill="{theme.leaf}">{pen.escape(label)} </tspan>'
        + f'<tspan fill="{theme.text2}">{pen.escape(shape)}</tspan></text>'
        + (mark(width - 18, TAG_HEIGHT / 2, hue) if mark else "")
    )
