"""How wide words are, without a font: from average advances of classes of characters.

The advances are those of a wide sans (DejaVu Sans, Verdana), so in narrower system fonts words
have some air and in none are they clipped.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache
from typing import Final

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
        text: what is written.
        size: of the font, in pixels.
        bold: whether it is semibold or bold.
    """
    ems = sum(_advance(char) for char in text)
    return -(-ems * size * (_BOLD if bold else 1.0) * 2 // 1) / 2


def _advance(char: str) -> float:
    advance = _ADVANCE.get(char)
    if advance is None:
        return _WIDE if unicodedata.east_asian_width(char) in "WF" else _OTHER
    return advance


def elide(text: str, limit: int) -> str:
    """Return a text of at most ``limit`` characters, its middle left out where it is longer."""
    if len(text) <= limit:
        return text
    head = (limit - 1) // 2
    return f"{text[:head]}…{text[len(text) - (limit - 1 - head) :]}"
