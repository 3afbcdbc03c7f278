"""A tensor that was created between forward and recomputation, and read by the recomputation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autogradviz.diagnose.blame.find_line_that_changed_state import find_culprit
from autogradviz.diagnose.blame.state_paths import both_objects

if TYPE_CHECKING:
    from collections.abc import Iterable

    from autogradviz.analysis import SourceLocation
    from autogradviz.diagnose.blame.code_run_between_events import RecomputeWindow
    from autogradviz.events import StateChanged


def find_recreated_tensor(
    window: RecomputeWindow, changes: Iterable[StateChanged]
) -> tuple[StateChanged, SourceLocation] | None:
    """Return the state that holds the new tensor, and the statement that assigned it.

    If both runs called the same ops, a new input explains more than a number that changed too.
    """
    lines = _creating_lines(window)
    for change in changes if lines else ():
        if both_objects(change):
            culprit = find_culprit(window, change)
            if culprit is not None and (culprit.filename, culprit.lineno) in lines:
                return change, culprit
    return None


def _creating_lines(window: RecomputeWindow) -> set[tuple[str, int]]:
    """Return the lines on the stack when the inputs of the recomputation were created."""
    evidence, since = window.evidence, window.region.exited_seq
    if since is None:
        return set()
    creators = {
        evidence.created_seq.get(tensor.storage_id)
        for op in window.recomputation.ops
        for tensor in op.inputs
        if tensor.storage_id is not None
    }
    return {
        (place.filename, place.lineno)
        for op in evidence.analysis.ops
        if since < op.seq < window.recomputation.started_seq and op.seq in creators
        for place in evidence.analysis.stack(op.stack_id)
    }
