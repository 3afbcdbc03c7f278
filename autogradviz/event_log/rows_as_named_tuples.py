"""Fast access to the event types that occur by the hundred thousand: rows as named tuples."""

from __future__ import annotations

from collections import namedtuple
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from autogradviz.events import EVENT_TYPES, Event, field_names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.event_log.log import Log

E = TypeVar("E", bound=Event)
_TIME: Final = field_names(Event).index("time_ns")  # the same in every event type

_ROW_TYPES: Final[dict[type[Event], Any]] = {
    kind: namedtuple(kind.__name__, field_names(kind))  # noqa: PYI024 - made from the events
    for kind in EVENT_TYPES
}


def last_ns(log: Log) -> int:
    """Return the time of the last event, 0 for an empty log."""
    times = (log.columns(kind)[_TIME] for kind in EVENT_TYPES)
    return max((each[-1] for each in times if each), default=0)


def rows_of(log: Log, kind: type[E]) -> Iterator[E]:
    """Yield the events of one type as named tuples, oldest first, at a tenth of the cost.

    They have the fields of the event class, but ``isinstance`` rejects them.
    """
    rows = zip(*log.columns(kind), strict=True)
    return cast("Iterator[E]", map(_ROW_TYPES[kind]._make, rows))
