"""Telling events: each gets its number and time, and becomes a row of the log.

One function a kind of event does all of it in one call: what it runs is written out from the
kind's own fields, since a row that is put together of parts costs half as much again.
"""

from __future__ import annotations

import itertools
import sys
from functools import cache
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, cast

from autogradviz.events import field_names

if TYPE_CHECKING:
    from collections.abc import Callable

    from autogradviz.event_log import Log
    from autogradviz.events import Event

_TEMPLATE = """
def make(append, number, tally, now_ns, began_ns):
    def tell({fields}):
        tally.newest = seq = number()
        if seq >= tally.due:
            tally.filled(seq)
        append((seq, now_ns() - began_ns, {fields}))
        return seq
    return tell
"""


class EventSequence:
    """Numbers the events of a recording, and calls its keeper when there are many."""

    __slots__ = ("began_ns", "due", "filled", "newest", "number")

    def __init__(self, filled: Callable[[int], None]) -> None:
        """Begin at 0.

        Args:
            filled: called with the number of the event that is ``due``, before it is told.
        """
        self.began_ns = perf_counter_ns()
        self.number = itertools.count().__next__
        self.newest = -1
        self.due = sys.maxsize
        self.filled = filled

    def next(self) -> int:
        """Return the number of the event that is about to be appended."""
        self.newest = seq = self.number()
        if seq >= self.due:
            self.filled(seq)
        return seq

    def emitter(self, log: Log, kind: type[Event]) -> Callable[..., int]:
        """Return the function that appends one event of a kind to a log, and returns its number.

        It takes the thread, the stack and the event's own fields, in their order.
        """
        make = _maker(field_names(kind)[2:])
        return make(log.appender(kind), self.number, self, perf_counter_ns, self.began_ns)


@cache
def _maker(fields: tuple[str, ...]) -> Callable[..., Callable[..., int]]:
    scope: dict[str, Any] = {}
    text = _TEMPLATE.format(fields=", ".join(fields))
    exec(text, scope)  # noqa: S102 - it holds the class's own field names only
    return cast("Callable[..., Callable[..., int]]", scope["make"])
