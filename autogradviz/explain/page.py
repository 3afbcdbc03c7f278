"""What one page of ``autogradviz explain`` holds."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import Final

WIDTH: Final = 88


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One finding or error, explained by itself.

    ``example`` is a whole program that gives it; where a finding names a line, that line ends
    with ``# <-- named``.
    """

    slug: str
    title: str
    means: str
    happens: str
    fix: str
    example: str

    def __str__(self) -> str:
        parts = [
            f"{self.title}  [{self.slug}]",
            _filled(self.means),
            f"How it happens\n{_filled(self.happens)}",
            f"How to fix it\n{_filled(self.fix)}",
            f"An example\n{textwrap.indent(self.example.strip(), '    ')}",
        ]
        return "\n\n".join(parts)

    __repr__ = __str__


def _filled(text: str) -> str:
    return textwrap.fill(" ".join(text.split()), WIDTH)
