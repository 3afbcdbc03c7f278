"""Nodes in SVG, with their saved-tensor badges and parameter badges.

Identical ones are drawn once at the origin, cached, and moved to their positions: a large graph
has few different looks.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from autogradviz.analysis.formatting import short_path
from autogradviz.render.svg import themes_and_primitives as svg
from autogradviz.render.svg.themes_and_primitives import Theme, mix
from autogradviz.scene.label_text_and_width import (
    BADGE_FONT_SIZE,
    saved_tensor_label,
    split_name,
    text_width,
)
from autogradviz.scene.layout.group_sizes_and_main_column import COMPACT_HEIGHT, NODE_HEIGHT
from autogradviz.scene.node_boxes_and_badges import BADGE_GAP, BOX_TO_BADGE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from autogradviz.scene.layout.coordinates import Box
    from autogradviz.scene.schema import GradState, ParameterBadge, SavedTensorBadge, SceneNode

BADGE_HEIGHT: Final = 19.0
CACHE_SIZE: Final = 4096


class _Look(NamedTuple):
    """The visible properties of a node."""

    op: str
    name: str
    op_width: float
    width: float
    ran: bool
    red: bool  # it failed, or a finding's victim
    writes: bool  # the culprit write of a finding
    wrote: bool  # any in-place write
    hooked: bool
    cloned: bool
    not_finite: bool


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
    )
    body = _compact(look, theme) if node.compact else _two_parts(look, theme)
    return (
        f'<g transform="translate({svg.num(box.x)} {svg.num(box.y)})">'
        f"<title>{svg.escape(_node_tooltip(node))}</title>{body}</g>"
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


@lru_cache(maxsize=CACHE_SIZE)
def _compact(look: _Look, theme: Theme) -> str:
    r, y = look.width / 2, COMPACT_HEIGHT / 2
    fill = mix(theme.backward, theme.tint2, theme.page) if look.ran else theme.page
    line = _line_color(look, theme)
    return (
        f'<circle cx="{svg.num(r)}" cy="{svg.num(y)}" r="{svg.num(r)}"'
        f" {svg.stroke(line, 1.1, fill=fill)}/>"
        + svg.path(
            f"M{svg.num(r - 3.5)} {svg.num(y)}h7M{svg.num(r)} {svg.num(y - 3.5)}v7",
            svg.round_stroke(line, 1.5),
        )
        + svg.text(2 * r + BOX_TO_BADGE, y + 4, look.name, fill=theme.text2, size=BADGE_FONT_SIZE)
        + (svg.hook_disc(0, 0, theme.text2, theme.page) if look.hooked else "")
    )


@lru_cache(maxsize=CACHE_SIZE)
def _two_parts(look: _Look, theme: Theme) -> str:
    """Return a box: the forward op on the left, the backward node on the right."""
    width, height, split = look.width, NODE_HEIGHT, look.op_width
    color = theme.mutation if look.red else theme.backward
    line = _line_color(look, theme)
    parts = []
    if look.red:
        halo = svg.stroke(mix(color, 0.25, theme.page), 4)
        parts.append(svg.rect(-2, -2, width + 4, height + 4, radius=8, style=halo))
    parts.append(svg.rect(0, 0, width, height, radius=6, style=f'fill="{theme.page}"'))
    if look.ran or look.red:
        parts.append(_right_part(look, mix(color, theme.tint2, theme.page)))
    if split:
        inner = svg.stroke(mix(line, 0.6, theme.page))
        parts.append(svg.path(f"M{svg.num(split)} 0v{svg.num(height)}", inner))
        parts.append(_op_text(look, theme))
    outline = svg.stroke(line, 1.6 if look.red else 1.1)
    parts.append(svg.rect(0, 0, width, height, radius=6, style=outline))
    stem, rest = split_name(look.name)
    name = svg.text(
        (split + width) / 2, height / 2 + 4, stem, fill=color, weight=600, anchor="middle"
    )
    dim = f'<tspan font-weight="400" fill-opacity="0.75">{svg.escape(rest)}</tspan></text>'
    parts.append(name.removesuffix("</text>") + dim if rest else name)
    if look.red:
        parts.append(svg.fail_disc(width, 0, theme.mutation, theme.page))
    if look.hooked:
        parts.append(svg.hook_disc(0, 0, theme.text2, theme.page))
    return "".join(parts) + _edge_badges(look, theme)


def _edge_badges(look: _Look, theme: Theme) -> str:
    """Return the badges on a box's edges: clones, values that are not finite."""
    right, bottom = look.width, NODE_HEIGHT
    background = f'fill="{theme.page}"'
    parts = []
    if look.cloned:
        parts.append(svg.rect(right - 10, bottom - 7, 16, 14, radius=7, style=background))
        parts.append(svg.two_squares(right - 2, bottom, theme.recompute))
    if look.not_finite:
        parts.append(svg.rect(right - 26, -7, 16, 14, radius=7, style=background))
        parts.append(svg.not_finite(right - 22, 0, theme.mutation))
    return "".join(parts)


def _right_part(look: _Look, fill: str) -> str:
    """Return the tinted part, rounded on the right, and on the left if it is the entire box."""
    left = 0 if look.op_width else 6
    rise = svg.num(NODE_HEIGHT - 12)
    d = f"M{svg.num(look.op_width + left)} 0H{svg.num(look.width - 6)}"
    d += f"q6 0 6 6v{rise}q0 6 -6 6H{svg.num(look.op_width + left)}"
    d += f"q-6 0 -6 -6v-{rise}q0 -6 6 -6Z" if left else "Z"
    return svg.path(d, f'fill="{fill}"')


def _op_text(look: _Look, theme: Theme) -> str:
    middle, base = look.op_width / 2, NODE_HEIGHT / 2 + 4
    color = theme.text if look.ran or look.red else theme.text2
    if not look.wrote:
        return svg.text(middle, base, look.op, fill=color, anchor="middle")
    weight, color = (600, theme.mutation) if look.writes else (400, color)
    width = text_width(look.op, bold=look.writes)
    pencil = theme.mutation if look.writes else theme.text2
    return svg.pencil(middle - width / 2 - 8, base, pencil) + svg.text(
        middle + 8, base, look.op, fill=color, weight=weight, anchor="middle"
    )


def draw_saved_tensors(
    badges: Sequence[SavedTensorBadge], x: float, middle: float, theme: Theme
) -> str:
    """Return the saved-tensor badges of one node, to the right of its box, which ends at ``x``."""
    colors = {
        "freed": theme.text2,
        "recomputed": theme.recompute,
        "broken": theme.mutation,
        "stale": theme.mutation,
    }
    parts = []
    x += BOX_TO_BADGE
    for badge in badges:
        if badge.width:
            label = saved_tensor_label(badge.slot, badge.version, badge.seen_version, badge.nbytes)
            body = _saved_tensor(label, badge.width, colors.get(badge.state, theme.saved), theme)
            parts.append(_badge_at(x, middle, _saved_tensor_tooltip(badge), body))
            x += badge.width + BADGE_GAP
    hidden = sum(not badge.width for badge in badges)
    # The arrow of the write ends at a broken badge.
    if hidden and not any(badge.width and badge.state == "broken" for badge in badges):
        text = f"+{hidden} saved"
        parts.append(svg.text(x, middle + 4, text, fill=theme.text2, size=BADGE_FONT_SIZE))
    return "".join(parts)


def _badge_at(x: float, middle: float, tooltip: str, body: str) -> str:
    """Return a badge at its position."""
    return (
        f'<g transform="translate({svg.num(x)} {svg.num(middle - BADGE_HEIGHT / 2)})">'
        f"<title>{svg.escape(tooltip)}</title>{body}</g>"
    )


def _saved_tensor_tooltip(badge: SavedTensorBadge) -> str:
    states = {
        "freed": "freed by its checkpoint, not recomputed",
        "recomputed": "freed, recomputed by its checkpoint",
        "broken": "changed since saved",
        "stale": "written since it was saved",
    }
    return f"{badge.slot} {badge.shape} {badge.dtype}\n{states.get(badge.state, badge.state)}"


@lru_cache(maxsize=CACHE_SIZE)
def _saved_tensor(label: tuple[str, str, str], width: float, color: str, theme: Theme) -> str:
    slot, version, nbytes = label
    border = svg.stroke(mix(color, 0.55, theme.page), fill=mix(color, theme.tint, theme.page))
    return (
        svg.rect(0, 0, width, BADGE_HEIGHT, radius=3, style=border)
        + svg.rect(0, 0, 4, BADGE_HEIGHT, radius=1.5, style=f'fill="{color}"')
        + '<text x="9" y="13.1" font-size="11" xml:space="preserve" '
        + f'fill="{theme.text}">{svg.escape(slot)}'
        + (f'<tspan font-weight="700" fill="{color}">{version}</tspan>' if version else "")
        + f'<tspan fill="{theme.text2}">{nbytes}</tspan></text>'
    )


def draw_parameters(badges: Sequence[ParameterBadge], x: float, middle: float, theme: Theme) -> str:
    """Return the parameter badges of one node, to the left of its box, which starts at ``x``."""
    parts = []
    x -= BOX_TO_BADGE
    for badge in badges:
        if badge.width:
            body = _parameter(badge.label, badge.shape, badge.grad, badge.width, theme)
            parts.append(_badge_at(x - badge.width, middle, _parameter_tooltip(badge), body))
            x -= badge.width + BADGE_GAP
    return "".join(parts)


def _parameter_tooltip(badge: ParameterBadge) -> str:
    grads = {
        "ok": "got a gradient" + (f", norm {badge.norm:.3g}" if badge.norm else ""),
        "none": "got no gradient",
        "unknown": "no backward ran",
        "zero": "gradient is zero",
        "nan": "gradient is NaN or infinite",
    }
    users = f"\nused by {badge.shared} nodes" if badge.shared > 1 else ""
    return f"{badge.name or 'input'} {badge.shape}\n{grads[badge.grad]}{users}"


@lru_cache(maxsize=CACHE_SIZE)
def _parameter(label: str, shape: str, grad: GradState, width: float, theme: Theme) -> str:
    fill = mix(theme.leaf, theme.tint, theme.page)
    style = svg.stroke(mix(theme.leaf, 0.6, theme.page), fill=fill)
    d = f"M3 0H{svg.num(width - 6)}l6 9.5l-6 9.5H3q-3 0 -3 -3v-13q0 -3 3 -3Z"
    icons = {"ok": svg.tick, "none": svg.empty_set, "zero": svg.zero, "nan": svg.not_finite}
    icon = icons.get(grad)
    hue = theme.mutation if grad in {"zero", "nan"} else theme.leaf
    used = text_width(f"{label} ", BADGE_FONT_SIZE, bold=True) + (28 if icon else 14)
    shape = shape if used + text_width(shape, BADGE_FONT_SIZE) <= width + 4 else ""
    return (
        svg.path(d, f'{style} stroke-linejoin="round"')
        + '<text x="7" y="13.1" font-size="11" xml:space="preserve">'
        + f'<tspan font-weight="600" fill="{theme.leaf}">{svg.escape(label)} </tspan>'
        + f'<tspan fill="{theme.text2}">{svg.escape(shape)}</tspan></text>'
        + (icon(width - 18, BADGE_HEIGHT / 2, hue) if icon else "")
    )
