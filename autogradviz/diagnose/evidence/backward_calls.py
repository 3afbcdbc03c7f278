"""The calls of backward, by id."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autogradviz.events import BackwardStarted

if TYPE_CHECKING:
    from autogradviz.analysis.types import SourceLocation
    from autogradviz.diagnose.evidence.facts import Evidence


def backward_of(evidence: Evidence, backward_id: int | None) -> BackwardStarted | None:
    """Return the start of a backward."""
    started = evidence.analysis.log.of(BackwardStarted)
    return next((event for event in started if event.backward_id == backward_id), None)


def backward_line(evidence: Evidence, backward_id: int | None) -> SourceLocation | None:
    """Return the line that called a backward."""
    event = backward_of(evidence, backward_id)
    return evidence.analysis.location(event.stack_id) if event is not None else None
