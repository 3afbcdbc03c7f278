"""Intervals in which a compiler ran: they are no time of a phase or a node."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

from autogradviz.events import CompileEnded, CompileStarted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from autogradviz.event_log import Log


def find_compilations(log: Log, end_ns: int) -> Iterator[tuple[CompileStarted, int]]:
    """Yield the start of each compilation and when it ended; one without an end ends last."""
    open_: dict[tuple[int, str, str], list[CompileStarted]] = {}
    events: list[CompileStarted | CompileEnded] = [
        *log.of(CompileStarted),
        *log.of(CompileEnded),
    ]
    for event in sorted(events, key=attrgetter("seq")):
        running = open_.setdefault((event.thread, event.compile_id, event.trigger), [])
        if isinstance(event, CompileStarted):
            running.append(event)
        elif running:
            yield running.pop(), event.time_ns
    for running in open_.values():
        for start in running:
            yield start, end_ns


def compile_intervals(log: Log, end_ns: int) -> list[tuple[int, int]]:
    """Return start and end of the intervals in which a compiler ran, ascending, without overlaps.

    The times of a backward and of a node do not contain the intervals inside them.
    """
    return join_intervals((start.time_ns, stop) for start, stop in find_compilations(log, end_ns))


def join_intervals(intervals: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the intervals in order; those that overlap are one."""
    found: list[tuple[int, int]] = []
    for start_ns, end_ns in sorted(intervals):
        if found and start_ns <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end_ns)
        else:
            found.append((start_ns, end_ns))
    return found
