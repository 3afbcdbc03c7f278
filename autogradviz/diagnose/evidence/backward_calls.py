"""The calls of backward, by id."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autogradviz.analysis.types import SourceLocation
    from autogradviz.diagnose.evidence.facts import Evidence
    from autogradviz.events import BackwardStarted


def backward_of(evidence: Evidence, backward_id: int | None) -> BackwardStarted | None:
    """Return the start of a backward."""
    return None if backward_id is None else evidence.causal_graph.backwards.get(backward_id)


def backward_line(evidence: Evidence, backward_id: int | None) -> SourceLocation | None:
    """Return the line that called a backward."""
    event = backward_of(evidence, backward_id)
    return evidence.analysis.location(event.stack_id) if event is not None else None
