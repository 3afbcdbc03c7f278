"""The log: rows of events by kind, appended while recording, read back as events.

A row is a plain tuple in the order of ``field_names(kind)``: appending one costs about a tenth
of building a frozen dataclass, and rows turn into columns without a detour. Events are built
when somebody reads them.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from autogradviz.events import EVENT_TYPES, Event, field_names

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

E = TypeVar("E", bound=Event)
Row: TypeAlias = tuple[Any, ...]


class Log:
    """All events of one recording.

    Appending is safe from several threads (one ``list.append`` a row); reading while somebody
    appends is not.
    """

    __slots__ = ("_events", "_rows", "_stored", "problem")

    def __init__(self) -> None:
        self._rows: dict[type[Event], list[Row]] = {kind: [] for kind in EVENT_TYPES}
        self._stored = 0  # events of a file, until all of them are rows
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

    @classmethod
    def of_stored(
        cls, read: Callable[[type[Event]], list[Row]], kinds: Collection[type[Event]], count: int
    ) -> Log:
        """Return a log whose rows are read kind by kind, when somebody asks for them.

        Args:
            read: returns the rows of a kind, oldest first.
            kinds: those that there are.
            count: of all events.
        """
        log = cls()
        log._rows = _RowsOnDemand(read, kinds)
        log._stored = count
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

    def drop_before(self, kind: type[Event], among: int, seq: int) -> int:
        """Of the oldest ``among`` rows of a kind let go of those older than an event.

        Returns:
            How many.
        """
        rows = self._rows[kind]
        stop = bisect_left(rows, seq, hi=among, key=itemgetter(0))
        del rows[:stop]
        self._events.pop(kind, None)
        return stop

    def keep_only(self, kind: type[Event], among: int, keep: Callable[[Row], bool]) -> int:
        """Of the oldest ``among`` rows of a kind keep some; return how many were let go."""
        rows = self._rows[kind]
        kept = [row for row in rows[:among] if keep(row)]
        rows[:among] = kept
        self._events.pop(kind, None)
        return among - len(kept)

    def copy(self) -> Log:
        """Return a log of the same rows, which grows by itself."""
        log = Log()
        for kind in EVENT_TYPES:
            log._rows[kind] = list(self._rows[kind])
        return log

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
        return self._stored or sum(map(len, self._rows.values()))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Log):
            return NotImplemented
        same = all(self.rows(kind) == other.rows(kind) for kind in EVENT_TYPES)
        return same and self.problem == other.problem

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<Log of {len(self):,} events>"


class _RowsOnDemand(dict[type[Event], list[Row]]):
    """Rows that are read when they are first looked up."""

    def __init__(
        self, read: Callable[[type[Event]], list[Row]], kinds: Collection[type[Event]]
    ) -> None:
        super().__init__({kind: [] for kind in EVENT_TYPES if kind not in kinds})
        self._read = read

    def __missing__(self, kind: type[Event]) -> list[Row]:
        rows = self[kind] = self._read(kind)
        return rows
