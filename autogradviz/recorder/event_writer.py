"""Event emission: assign a sequence number and a timestamp, append a row to the log.

One function for each kind of event does all of it in one call. It is generated from the fields of
the kind, since building a row out of parts costs half as much again.
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
def make(append, number, sequence, now_ns, began_ns):
    def emit({fields}):
        sequence.newest = seq = number()
        if seq >= sequence.due:
            sequence.on_due(seq)
        append((seq, now_ns() - began_ns, {fields}))
        return seq
    return emit
"""


class EventSequence:
    """Numbers the events of a recording, and calls its retention policy when many were added."""

    __slots__ = ("began_ns", "due", "newest", "number", "on_due")

    def __init__(
        self,
        on_due: Callable[[int], None] | None = None,
        number: Callable[[], int] | None = None,
    ) -> None:
        """Begin at 0.

        Args:
            on_due: called with a number from ``due`` on, before the event is appended.
            number: returns the next number, if C++ numbers events too.
        """
        self.began_ns = perf_counter_ns()
        self.number: Callable[[], int] = number or itertools.count().__next__
        self.newest = -1
        self.due = sys.maxsize
        self.on_due: Callable[[int], None] = on_due or _ignore

    def set_due(self, seq: int) -> None:
        """Call ``on_due`` for each event from a number on."""
        self.due = seq

    def next(self) -> int:
        """Return the number of the event that is about to be appended."""
        self.newest = seq = self.number()
        if seq >= self.due:
            self.on_due(seq)
        return seq

    def emitter(self, log: Log, kind: type[Event]) -> Callable[..., int]:
        """Return the function that appends one event of a kind to a log and returns its number.

        It takes the thread, the stack and the event's own fields, in their order.
        """
        make = _maker(field_names(kind)[2:])
        return make(log.appender(kind), self.number, self, perf_counter_ns, self.began_ns)


def _ignore(_seq: int) -> None:
    """Do nothing: no retention policy was set."""


@cache
def _maker(fields: tuple[str, ...]) -> Callable[..., Callable[..., int]]:
    scope: dict[str, Any] = {}
    text = _TEMPLATE.format(fields=", ".join(fields))
    exec(text, scope)  # noqa: S102 - it holds the class's own field names only
    return cast("Callable[..., Callable[..., int]]", scope["make"])
