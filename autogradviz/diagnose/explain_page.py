"""Documentation pages: what ``autogradviz explain`` prints."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import Final

WIDTH: Final = 88


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The documentation of one finding or error. ``str(page)`` is the text.

    Attributes:
        slug: the name of the finding or error, "graph-lost".
        title: one sentence without a period.
        means: what happened, and why it matters.
        happens: the code that usually causes it.
        fix: what to change.
        example: a complete program that causes it. The line that the finding names as the
            culprit ends with ``# <-- named``.
        processes: how many processes run the example, as torchrun starts them; each records to
            the folder "run/".

    Example:
        >>> autogradviz.explain("graph-lost").title
        'The loss has no graph'
    """

    slug: str
    title: str
    means: str
    happens: str
    fix: str
    example: str
    processes: int = 1

    def __str__(self) -> str:
        parts = [
            f"{self.title}  [{self.slug}]",
            _wrap(self.means),
            f"How it happens\n{_wrap(self.happens)}",
            f"How to fix it\n{_wrap(self.fix)}",
            f"An example{self._start}\n{textwrap.indent(self.example.strip(), '    ')}",
        ]
        return "\n\n".join(parts)

    __repr__ = __str__

    @property
    def _start(self) -> str:
        launcher = f": torchrun --nproc-per-node {self.processes} example.py"
        return "" if self.processes == 1 else launcher


def _wrap(text: str) -> str:
    return textwrap.fill(" ".join(text.split()), WIDTH)
