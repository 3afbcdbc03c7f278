"""The log: rows of events by kind, appended while recording, read back as events.

A row is a plain tuple in the order of ``field_names(kind)``: appending one costs about a tenth
of building a frozen dataclass, and rows turn into columns without a detour. Events are built
when somebody reads them.
"""

from __future__ import annotations

import heapq
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from autogradviz.events import EVENT_TYPES, Event, field_names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

E = TypeVar("E", bound=Event)
Row: TypeAlias = tuple[Any, ...]


class Log:
    """All events of one recording.

    Appending is safe from several threads (one ``list.append`` a row); reading while somebody
    appends is not.
    """

    __slots__ = ("_events", "_rows", "problem")

    def __init__(self) -> None:
        self._rows: dict[type[Event], list[Row]] = {kind: [] for kind in EVENT_TYPES}
        self._events: dict[type[Event], tuple[Event, ...]] = {}
        self.problem: str | None = None
        """What is missing from a torn file, in one line; ``None`` for a whole recording."""

    @classmethod
    def from_events(cls, events: Iterable[Event]) -> Log:
        """Return a log of the events given, in any order."""
        log = cls()
        for event in events:
            names = field_names(type(event))
            log._rows[type(event)].append(attrgetter(*names)(event))
        log.sort()
        return log

    def appender(self, kind: type[Event]) -> Callable[[Row], None]:
        """Return the function that appends one row of a kind."""
        return self._rows[kind].append

    def rows(self, kind: type[Event]) -> list[Row]:
        """Return the rows of a kind, oldest first, as tuples in the order of its fields."""
        return self._rows[kind]

    def extend_rows(self, kind: type[Event], rows: Iterable[Row]) -> None:
        """Append rows of a kind, oldest first."""
        self._rows[kind].extend(rows)

    def sort(self) -> None:
        """Put every kind's rows in order; threads may have appended them out of turn."""
        for rows in self._rows.values():
            rows.sort(key=itemgetter(0))

    def of(self, kind: type[E]) -> tuple[E, ...]:
        """Return the events of a kind, oldest first."""
        events = self._events.get(kind)
        rows = self._rows[kind]
        if events is None or len(events) != len(rows):
            names = field_names(kind)
            events = tuple(kind(**dict(zip(names, row, strict=True))) for row in rows)
            self._events[kind] = events
        return events  # type: ignore[return-value]

    def merged(self, *kinds: type[Event]) -> Iterator[Event]:
        """Yield the events of several kinds (all when none is named), oldest first."""
        streams = [self.of(kind) for kind in kinds or EVENT_TYPES]
        return heapq.merge(*streams, key=attrgetter("seq"))

    def __iter__(self) -> Iterator[Event]:
        return self.merged()

    def __len__(self) -> int:
        return sum(map(len, self._rows.values()))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Log):
            return NotImplemented
        return self._rows == other._rows and self.problem == other.problem

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<Log of {len(self):,} events>"
