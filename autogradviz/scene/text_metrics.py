"""Text widths without a font, from average advances of character classes.

The advances are those of a wide sans-serif font (DejaVu Sans, Verdana), so that text fits with
some space to spare in narrower system fonts.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache
from typing import Final

BADGE_FONT_SIZE: Final = 11.0  # pixels
MAX_NAME: Final = 48
"""Characters of an op or node name. Longer names are elided."""

_CLASSES: Final = (
    (0.28, "'ijlIJ"),
    (0.33, " ,.·/:;|\\f-"),
    (0.4, "()[]t!r"),
    (0.5, '"*_`–sz?'),
    (0.6, "cLFkvxyPTYaoe"),
    (0.64, "ESbdghnpqu0123456789${}"),
    (0.69, "KAVBRXZC"),
    (0.77, "UHNDG&"),
    (0.84, "OQw#+<=>^~×→±M"),
    (0.99, "%mW@"),
)
_ADVANCE: Final = {char: advance for advance, chars in _CLASSES for char in chars}
_OTHER: Final = 0.7
_WIDE: Final = 1.1  # ideographs, emoji
_BOLD: Final = 1.13


@lru_cache(maxsize=4096)
def text_width(text: str, size: float = 12.0, *, bold: bool = False) -> float:
    """Return the width of one line of text in pixels, rounded up to a half.

    Args:
        text: the line.
        size: font size in pixels.
        bold: whether the font is semibold or bold.
    """
    ems = sum(_advance(char) for char in text)
    return -(-ems * size * (_BOLD if bold else 1.0) * 2 // 1) / 2


def _advance(char: str) -> float:
    advance = _ADVANCE.get(char)
    if advance is None:
        return _WIDE if unicodedata.east_asian_width(char) in "WF" else _OTHER
    return advance


def elide(text: str, limit: int) -> str:
    """Return a text of at most ``limit`` characters. The middle of a longer text is left out."""
    if len(text) <= limit:
        return text
    head = (limit - 1) // 2
    return f"{text[:head]}…{text[len(text) - (limit - 1 - head) :]}"
