"""Writes that no recorded op made: through raw memory, or in another thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autogradviz.diagnose.blame.code_run_between import REACHABLE, ExecutionWindow
from autogradviz.diagnose.source import source_index as source
from autogradviz.diagnose.source.raw_memory_writes import raw_writes
from autogradviz.diagnose.source.writes_in_threads import writes_in_threads
from autogradviz.events import BackwardStarted

if TYPE_CHECKING:
    from autogradviz.analysis import Op, SourceLocation
    from autogradviz.diagnose.evidence.facts import Evidence


def memory_write(
    evidence: Evidence, window: ExecutionWindow | None = None
) -> SourceLocation | None:
    """Return a line in the user's source that writes memory without an op.

    Args:
        evidence: the recording.
        window: prefer the line that most probably ran in this window.
    """
    for filename in evidence.user_files:
        found = raw_writes(filename)
        if window is not None:  # the sort is stable
            found.sort(key=lambda place: -window.ran_in_window(filename, place[1], place[0]))
        if found:
            return source.location(filename, *found[0])
    return None


def thread_write(evidence: Evidence) -> SourceLocation | None:
    """Return a line in the user's source that writes in place in a thread of its own."""
    found = ((name, *place) for name in evidence.user_files for place in writes_in_threads(name))
    place = next(found, None)
    return source.location(*place) if place is not None else None


def unrecorded_write(evidence: Evidence) -> SourceLocation | None:
    """Return a line that writes in a thread, else one that writes memory without an op."""
    return thread_write(evidence) or memory_write(evidence)


def window_until_read(evidence: Evidence, op: Op | None, read_seq: int) -> ExecutionWindow:
    """Return the window between an op that saved a tensor and the backward that read it."""
    started = [e for e in evidence.analysis.log.of(BackwardStarted) if e.seq < read_seq]
    return ExecutionWindow(
        evidence,
        op.stack_id if op is not None else None,
        started[-1].stack_id if started else None,
    )


def write_before_read(evidence: Evidence, op: Op | None, read_seq: int) -> SourceLocation | None:
    """Return a source line that may have written between an op and a read of its tensor."""
    return memory_write(evidence, window_until_read(evidence, op, read_seq)) or thread_write(
        evidence
    )


def ran_before_read(
    evidence: Evidence, op: Op | None, read_seq: int, line: SourceLocation | None
) -> bool:
    """Return whether the source shows that a line ran between a save and its read."""
    if line is None:
        return True
    window = window_until_read(evidence, op, read_seq)
    return window.ran_in_window(line.filename, line.function, line.lineno) >= REACHABLE
