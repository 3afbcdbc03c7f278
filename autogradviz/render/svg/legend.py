"""Legend of an SVG: the icons, colors and lines that the picture uses."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from autogradviz.render.svg import primitives as svg
from autogradviz.render.svg.theme import Theme, mix
from autogradviz.scene.text_metrics import text_width

if TYPE_CHECKING:
    from collections.abc import Callable

    from autogradviz.render.svg.header import Page
    from autogradviz.scene.layout.coordinates import Placement
    from autogradviz.scene.schema import Scene

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
        ("recomputed" in saved, "freed, recomputed", partial(_saved, theme, purple)),
        (bool(saved & {"broken", "stale"}), "changed since saved", partial(_saved, theme, red)),
        (bool(grads), "parameter", partial(_parameter, theme)),
        ("none" in grads, "grad is None", _at(svg.empty_set, 12, 0, theme.leaf)),
        ("zero" in grads, "grad is zero", _at(svg.zero, 12, 0, red)),
        (not_finite, "NaN or infinite", _at(svg.not_finite, 12, 0, red)),
        (any(n.hooks for n in nodes), "hook", _at(svg.hook_disc, 16, 0, theme.text2, theme.page)),
        (any(g.checkpointed for g in groups), "checkpoint region", partial(_dashed, theme)),
        (any(n.error for n in nodes), "fails here", _at(svg.fail_disc, 16, 0, red, theme.page)),
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
