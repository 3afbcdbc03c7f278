"""Themes and SVG primitives: numbers, text, paths and icons. All text is escaped here."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence


# --- light and dark color themes of SVG pictures --------------------------------------------------


ThemeName: TypeAlias = Literal["light", "dark"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Theme:
    """One color per meaning. Text or a shape always accompanies the color."""

    text: str
    text2: str
    edge: str
    backward: str
    saved: str
    mutation: str
    recompute: str
    leaf: str
    path: str
    page: str
    surface: str  # behind pills
    line: str  # thin borders
    tint: float  # share of the color in badges
    tint2: float  # share of the color in nodes that ran


LIGHT: Final = Theme(
    text="#1f2328",
    text2="#57606a",
    edge="#6e7781",
    backward="#1f5fbf",
    saved="#0b6e4f",
    mutation="#b3261e",
    recompute="#6f3fb5",
    leaf="#7a5c00",
    path="#a85000",
    page="#ffffff",
    surface="#f4f5f7",
    line="#c8cdd4",
    tint=0.09,
    tint2=0.18,
)
DARK: Final = Theme(
    text="#e6e6e6",
    text2="#aab2bc",
    edge="#7d8590",
    backward="#82b1ff",
    saved="#4cc9a0",
    mutation="#ff8a80",
    recompute="#c6a5ff",
    leaf="#e3c15a",
    path="#ffb454",
    page="#16181b",
    surface="#1e2125",
    line="#434a53",
    tint=0.13,
    tint2=0.24,
)
THEMES: Final[dict[str, Theme]] = {"light": LIGHT, "dark": DARK}


def find_theme(name: str) -> Theme:
    """Return the colors of a theme.

    Raises:
        ValueError: if there is no such theme.
    """
    if name not in THEMES:
        message = f'theme is "light" or "dark", not {name!r}'
        raise ValueError(message)
    return THEMES[name]


@cache
def mix(color: str, share: float, other: str) -> str:
    """Return ``share`` of one color mixed into another, as ``color-mix(in srgb, …)`` does."""
    pairs = [(int(color[i : i + 2], 16), int(other[i : i + 2], 16)) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(a * share + b * (1 - share)):02x}" for a, b in pairs)


# --- SVG primitives: numbers, text, paths and icons. All text is escaped here ---------------------


FONT: Final = "system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif"
MONO: Final = "ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace"
_FORBIDDEN: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
CORNER: Final = 6.0
NARROW: Final = 900.0
"""Pixels that the cell of a notebook has, about."""
_SIZE: Final = re.compile(r'width="([\d.]+)" height="[\d.]+"')


def fit_into_cell(picture: str) -> str:
    """Return a picture that is as wide as the cell of a notebook, if it would be wider.

    Notebooks show it in an image element, which takes the width of the file: with none there, the
    image is as wide as the page allows, and as high as the view box says.
    """
    size = _SIZE.search(picture, 0, picture.find(">"))
    if size is None or float(size[1]) <= NARROW:
        return picture
    return f'{picture[: size.start()]}width="100%"{picture[size.end() :]}'


def escape(text: str) -> str:
    """Return a text that is safe in the content and the attributes of SVG and HTML."""
    if _FORBIDDEN.search(text):
        text = _FORBIDDEN.sub("\ufffd", text)
    return (
        text.replace("&", "&amp;")
        .replace("<", "&lt;")
        .replace(">", "&gt;")
        .replace('"', "&quot;")
        .replace("'", "&#39;")
    )


def num(value: float) -> str:
    """Return a coordinate with at most one decimal."""
    return f"{value:.1f}".removesuffix(".0")


def text(
    x: float,
    y: float,
    content: str,
    *,
    fill: str,
    size: float = 12,
    weight: int = 400,
    anchor: str = "start",
) -> str:
    """Return one line of text; ``y`` is its baseline."""
    bold = f' font-weight="{weight}"' if weight != 400 else ""  # noqa: PLR2004  the default
    align = f' text-anchor="{anchor}"' if anchor != "start" else ""
    start = f'<text x="{num(x)}" y="{num(y)}" font-size="{num(size)}" fill="{fill}"{bold}{align}>'
    return f"{start}{escape(content)}</text>"


def rect(x: float, y: float, width: float, height: float, *, radius: float, style: str) -> str:
    """Return a rounded rectangle."""
    return (
        f'<rect x="{num(x)}" y="{num(y)}" width="{num(width)}" height="{num(height)}"'
        f' rx="{num(radius)}" {style}/>'
    )


def size(width: float, height: float, width_mm: float | None) -> str:
    """Return the attributes of a picture's size: in its own units, or of a column in a paper."""
    if width_mm is None:
        return f'width="{num(width)}" height="{num(height)}"'
    return f'width="{num(width_mm)}mm" height="{num(height * width_mm / width)}mm"'


def path(d: str, style: str) -> str:
    """Return a path."""
    return f'<path d="{d}" {style}/>'


def stroke(color: str, width: float = 1, *, dash: str = "", fill: str = "none") -> str:
    """Return the attributes of a line."""
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    return f'fill="{fill}" stroke="{color}" stroke-width="{num(width)}"{dashes}'


def round_stroke(color: str, width: float) -> str:
    """Return the attributes of an icon's line."""
    return f'{stroke(color, width)} stroke-linejoin="round" stroke-linecap="round"'


def polyline(points: Sequence[tuple[float, float]]) -> str:
    """Return the path data of vertical and horizontal segments with round corners."""
    x, y = points[0]
    parts = [f"M{num(x)} {num(y)}"]
    if len(points) == 2:  # noqa: PLR2004  a straight line, the most frequent case
        return f"{parts[0]}V{num(points[1][1])}"
    for i in range(1, len(points) - 1):
        corner, after = points[i], points[i + 1]
        before_length = abs(corner[0] - x) + abs(corner[1] - y)
        after_length = abs(after[0] - corner[0]) + abs(after[1] - corner[1])
        last = i == len(points) - 2
        radius = min(CORNER, before_length, after_length if last else after_length / 2)
        if radius <= 0:
            continue
        back, on = radius / max(before_length, radius), radius / after_length
        x0, y0 = corner[0] + (x - corner[0]) * back, corner[1] + (y - corner[1]) * back
        x, y = corner[0] + (after[0] - corner[0]) * on, corner[1] + (after[1] - corner[1]) * on
        parts.append(f"L{num(x0)} {num(y0)}Q{num(corner[0])} {num(corner[1])} {num(x)} {num(y)}")
    parts.append(f"L{num(points[-1][0])} {num(points[-1][1])}")
    return "".join(parts)


def arrow_head(points: Sequence[tuple[float, float]], size: float = 6.0) -> str:
    """Return the path data of a vertical arrow's head at the last point."""
    x, y = points[-1]
    back, half = (size if points[-2][1] > y else -size), size * 0.57
    return f"M{num(x - half)} {num(y + back)}L{num(x)} {num(y)}L{num(x + half)} {num(y + back)}Z"


def chevron(x: float, y: float, color: str, *, is_open: bool) -> str:
    """Return the expander of a group, with its middle left point at x, y."""
    opened, closed = (
        f"M{num(x)} {num(y - 2)}l4 4l4 -4",
        f"M{num(x + 1)} {num(y - 3.5)}l3.5 3.5l-3.5 3.5",
    )
    return path(opened if is_open else closed, round_stroke(color, 1.5))


def recompute_icon(x: float, y: float, color: str) -> str:
    """Return the circular arrow of a recomputation, centered at x, y."""
    arc = f"M{num(x + 3.4)} {num(y - 1.3)}A3.6 3.6 0 1 0 {num(x + 3.6)} {num(y + 0.8)}"
    head = f"M{num(x + 4.5)} {num(y - 3.8)}l-0.7 3.4l-3.4 -1.2"
    return path(arc + head, round_stroke(color, 1.4))


def fail_disc(x: float, y: float, color: str, cross: str) -> str:
    """Return the crossed disc of a failure, centered at x, y."""
    disc = f'<circle cx="{num(x)}" cy="{num(y)}" r="7" fill="{color}"/>'
    d = f"M{num(x - 2.6)} {num(y - 2.6)}l5.2 5.2M{num(x + 2.6)} {num(y - 2.6)}l-5.2 5.2"
    return disc + path(d, round_stroke(cross, 1.6))


def finding_disc(x: float, y: float, color: str, page: str) -> str:
    """Return the disc with an exclamation mark of a finding, centered at x, y."""
    disc = f'<circle cx="{num(x)}" cy="{num(y)}" r="6.5" fill="{color}"/>'
    return disc + path(
        f"M{num(x)} {num(y - 3.4)}v3.8M{num(x)} {num(y + 3.2)}v0.2", round_stroke(page, 1.6)
    )


def hook_disc(x: float, y: float, color: str, page: str) -> str:
    """Return the circled hook of a node with hooks, centered at x, y."""
    disc = f'<circle cx="{num(x)}" cy="{num(y)}" r="6.5" {stroke(color, 1.2, fill=page)}/>'
    return disc + path(
        f"M{num(x + 1.6)} {num(y - 3.2)}v4.2q0 2 -2 2t-2 -2", round_stroke(color, 1.3)
    )


def pencil(x: float, y: float, color: str) -> str:
    """Return the pencil of an in-place write, with its lower left tip at x, y."""
    body = f"M{num(x)} {num(y)}l0.8 -3.2l6.2 -6.2l2.4 2.4l-6.2 6.2Z"
    body += f"M{num(x + 5.4)} {num(y - 7.8)}l2.4 2.4"
    return path(body, round_stroke(color, 1.3))


def two_squares(x: float, y: float, color: str) -> str:
    """Return the two squares of a clone, centered at x, y."""
    d = f"M{num(x - 4.5)} {num(y - 4.5)}h6v6h-6ZM{num(x - 1.5)} {num(y + 1.5)}v3h6v-6h-3"
    return path(d, round_stroke(color, 1.2))


def tick(x: float, y: float, color: str) -> str:
    """Return the check mark of an accumulated gradient."""
    return path(f"M{num(x)} {num(y)}l2.6 2.8l4.8 -5.6", round_stroke(color, 1.5))


def zero(x: float, y: float, color: str) -> str:
    """Return the zero of a gradient that is exactly zero."""
    return f'<ellipse cx="{num(x + 3.7)}" cy="{num(y)}" rx="2.6" ry="4" {stroke(color, 1.4)}/>'


def not_finite(x: float, y: float, color: str) -> str:
    """Return the filled triangle of a gradient that contains NaN or infinities."""
    return path(f"M{num(x)} {num(y + 4)}h8l-4 -8.5Z", f'fill="{color}"')


def empty_set(x: float, y: float, color: str) -> str:
    """Return the crossed circle of a gradient that is None."""
    ring = f'<circle cx="{num(x + 3.7)}" cy="{num(y)}" r="3.2" {stroke(color, 1.2)}/>'
    return ring + path(f"M{num(x)} {num(y + 4.2)}l7.4 -8.4", round_stroke(color, 1.2))
