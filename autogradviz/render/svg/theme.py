"""Light and dark color themes of SVG pictures."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Final, Literal, TypeAlias

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
