"""A tensor that was made anew between a region's two runs, and that the second run read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autogradviz.diagnose.blame.state_paths import both_objects
from autogradviz.diagnose.blame.state_write import find_culprit

if TYPE_CHECKING:
    from collections.abc import Iterable

    from autogradviz.analysis import Recomputation, Region, SourceLocation
    from autogradviz.diagnose.evidence.facts import Evidence
    from autogradviz.events import StateChanged


def find_remade(
    evidence: Evidence, region: Region, again: Recomputation, changes: Iterable[StateChanged]
) -> tuple[StateChanged, SourceLocation] | None:
    """Return what holds the new tensor, and the statement that gave it that: it was being run.

    Where both runs called the same operators, what reaches them says more than a number that
    changed along with it.
    """
    lines = _lines(evidence, region, again)
    for change in changes if lines else ():
        if both_objects(change):
            culprit = find_culprit(evidence, region, again, change)
            if culprit is not None and (culprit.filename, culprit.lineno) in lines:
                return change, culprit
    return None


def _lines(evidence: Evidence, region: Region, again: Recomputation) -> set[tuple[str, int]]:
    """Return the lines that were open while what the second run reads was made."""
    since = region.exited_seq
    if since is None:
        return set()
    read = {
        evidence.created_seq.get(tensor.storage_id)
        for op in again.ops
        for tensor in op.inputs
        if tensor.storage_id is not None
    }
    return {
        (place.filename, place.lineno)
        for op in evidence.analysis.ops
        if since < op.seq < again.started_seq and op.seq in read
        for place in evidence.analysis.stack(op.stack_id)
    }
