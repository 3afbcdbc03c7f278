"""Candidate lines for a culprit, and how the best one is chosen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.source import source_index as source

if TYPE_CHECKING:
    from collections.abc import Iterable

    from autogradviz.analysis import SourceLocation

IN_WINDOW: Final = 3
"""The certainty of a line between the two moments."""
REACHABLE: Final = 2
"""The certainty of a line in a function that a line in between may call."""


@dataclass(frozen=True, slots=True)
class LineCandidate:
    """A line of the user's source that may have caused a change.

    Attributes:
        filename: the file.
        lineno: the line, from 1.
        function: the qualified name of the function, "" for the module itself.
        certainty: how certain it is that the line ran in the window, as ``ExecutionWindow`` rates
            it; 0 rules the line out.
        preference: orders equally certain candidates; larger is better, element by element.
    """

    filename: str
    lineno: int
    function: str
    certainty: int
    preference: tuple[int, ...] = ()

    @property
    def location(self) -> SourceLocation:
        """The line with its text."""
        return source.location(self.filename, self.lineno, self.function)


def best_candidate(
    candidates: Iterable[LineCandidate], *, at_least: int = 1
) -> LineCandidate | None:
    """Return the most certain candidate, of several the preferred, of several the first line.

    Args:
        candidates: the lines to choose from.
        at_least: the lowest certainty to accept.
    """
    return min(
        (each for each in candidates if each.certainty >= at_least),
        key=lambda c: (-c.certainty, [-part for part in c.preference], c.lineno, c.filename),
        default=None,
    )


def best_line(candidates: Iterable[LineCandidate], *, at_least: int = 1) -> SourceLocation | None:
    """Return the line of ``best_candidate``, None without a candidate."""
    best = best_candidate(candidates, at_least=at_least)
    return best.location if best is not None else None
