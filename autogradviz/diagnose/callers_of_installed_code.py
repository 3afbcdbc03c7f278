"""The user's line before a line of an installed package, in facts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from autogradviz.events import FrameSeen, StackSeen
from autogradviz.support.source import is_installed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from autogradviz.analysis import Analysis, SourceLocation
    from autogradviz.diagnose.fact import Fact


def users_lines_first(analysis: Analysis, facts: Sequence[Fact]) -> Iterator[Fact]:
    """Yield facts whose culprit is a line of the user's program, if one called the code.

    The files of a program that is an installed package itself have no other caller.
    """
    for fact in facts:
        culprit = fact.culprit
        caller = _caller(analysis, culprit) if culprit and is_installed(culprit.filename) else None
        if caller is None:
            yield fact
        else:
            called = "This line called installed code, which is where it happens:"
            yield replace(fact, culprit=caller, explanation=(called, culprit, *fact.explanation))


def _caller(analysis: Analysis, line: SourceLocation) -> SourceLocation | None:
    """Return the innermost line outside of installed packages in the first stack with a line."""
    frames = {
        frame_id
        for frame_id, filename, lineno in analysis.log.fields(
            FrameSeen, "frame_id", "filename", "lineno"
        )
        if (filename, lineno) == (line.filename, line.lineno)
    }
    if not frames:
        return None
    for stack_id, frame_ids in analysis.log.fields(StackSeen, "stack_id", "frame_ids"):
        if frames.isdisjoint(frame_ids):
            continue
        inside = False
        for place in analysis.user_stack(stack_id):
            inside = inside or (place.filename, place.lineno) == (line.filename, line.lineno)
            if inside and not is_installed(place.filename):
                return place
    return None
