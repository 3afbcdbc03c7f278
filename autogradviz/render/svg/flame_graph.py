"""The SVG of a flame graph: the sum above, its parts below, each as wide as its share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from autogradviz.analysis.formatting import format_bytes, format_duration, plural
from autogradviz.render.svg import themes_and_primitives as svg
from autogradviz.render.svg.themes_and_primitives import Theme, ThemeName, find_theme, mix
from autogradviz.scene.label_text_and_width import text_width

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis.flame_graph import FlameFrame, FlameKind

WIDTH: Final = 1080.0
MARGIN: Final = 28.0
ROW: Final = 21.0
MIN_WIDTH: Final = 1.0
"""Width in pixels below which a frame is not drawn."""

MIN_TEXT: Final = 34.0
FONT_SIZE: Final = 10.5


def format_value(value: int, kind: FlameKind) -> str:
    """Return bytes or a duration as text."""
    return format_bytes(value) if kind == "memory" else format_duration(value)


def render_flame_svg(
    root: FlameFrame, kind: FlameKind, title: str, *, theme: ThemeName = "light"
) -> str:
    """Return a flame graph as SVG.

    Args:
        root: the frame that contains all others.
        kind: "memory" or "time", the unit of the frames' values.
        title: first line of the picture.
        theme: "light" or "dark".
    """
    colors = find_theme(theme)
    placed = list(_place(root, 0, MARGIN, WIDTH - 2 * MARGIN))
    drawn = [each for each in placed if each[3] >= MIN_WIDTH]
    top = MARGIN + 34
    height = top + ROW * (1 + max(depth for _, depth, _, _ in drawn)) + 30
    what = "saved, held at peak" if kind == "memory" else "of ops, nodes and recomputations"
    parts = [
        svg.text(MARGIN, MARGIN + 6, title, fill=colors.text, size=16, weight=650),
        svg.text(
            MARGIN,
            MARGIN + 24,
            f"{format_value(root.value, kind)} {what}; from module to line to "
            f"{'tensor' if kind == 'memory' else 'op or node'}",
            fill=colors.text2,
            size=11.5,
        ),
    ]
    parts += [_draw(each, root.value, kind, colors, top) for each in drawn]
    if len(placed) > len(drawn):
        cut = plural(len(placed) - len(drawn), "frame") + " narrower than a pixel not drawn"
        parts.append(svg.text(MARGIN, height - 10, cut, fill=colors.text2, size=10))
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{svg.num(WIDTH)}" '
        f'height="{svg.num(height)}" viewBox="0 0 {svg.num(WIDTH)} {svg.num(height)}" '
        f'font-family="{svg.FONT}">\n<rect width="100%" height="100%" fill="{colors.page}"/>\n'
        f"{body}\n</svg>\n"
    )


def _place(
    frame: FlameFrame, depth: int, x: float, width: float
) -> Iterator[tuple[FlameFrame, int, float, float]]:
    """Yield frames with depth, position and width, the earliest first in each row."""
    yield frame, depth, x, width
    for child in frame.children.values():
        share = width * child.value / max(1, frame.value)
        yield from _place(child, depth + 1, x, share)
        x += share


def _draw(
    placed: tuple[FlameFrame, int, float, float],
    total: int,
    kind: FlameKind,
    colors: Theme,
    top: float,
) -> str:
    frame, depth, x, width = placed
    value = format_value(frame.value, kind)
    hue = _hue(frame, kind, colors)
    strength = {"root": 0.08, "phase": 0.3, "module": 0.22, "line": 0.13, "leaf": 0.32}[frame.kind]
    y = top + depth * ROW
    name = frame.label or ("held at peak" if kind == "memory" else "total")
    count = f" ×{frame.count:,}" if frame.kind == "leaf" and frame.count > 1 else ""
    style = f'fill="{mix(hue, strength, colors.page)}"'
    box = svg.rect(x, y, max(width - 1, 0.5), ROW - 1, radius=2, style=style)
    label = fit_text(f"{name}{count}", value, width - 9)
    words = ""
    if label and width >= MIN_TEXT:
        fill = colors.text if frame.kind != "line" else colors.text2
        bold = 600 if frame.kind in {"root", "phase", "module"} else 400
        words = svg.text(x + 4, y + 14, label, fill=fill, size=FONT_SIZE, weight=bold)
    at = f" ({frame.place})" if frame.place else ""
    hint = f"{frame.label or name}{count}{at}: {value}, {frame.value / max(1, total):.1%}"
    return f"<g><title>{svg.escape(hint)}</title>{box}{words}</g>"


def _hue(frame: FlameFrame, kind: FlameKind, colors: Theme) -> str:
    if kind == "memory":
        is_argument = frame.label == "checkpoint argument"
        return colors.recompute if is_argument else colors.saved
    if frame.phase == "optimizer":
        return colors.leaf
    if frame.phase == "backward":
        return colors.backward
    return colors.recompute if frame.phase == "recompute" else colors.text2


def fit_text(name: str, value: str, width: float) -> str:
    """Return the name with its value, or what of the name fits; "" if almost nothing does."""
    full = f"{name} · {value}"
    if text_width(full, FONT_SIZE, bold=True) <= width:
        return full
    if text_width(name, FONT_SIZE, bold=True) <= width:
        return name
    kept = name
    while kept and text_width(f"{kept}…", FONT_SIZE, bold=True) > width:
        kept = kept[:-1]
    return f"{kept.rstrip()}…" if len(kept) > 1 else ""
