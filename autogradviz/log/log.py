"""The log: rows of events by kind, appended while recording, read back as events.

A row is a plain tuple in the order of ``field_names(kind)``: appending one costs about a tenth
of building a frozen dataclass, and rows turn into columns without a detour. Events are built
when somebody reads them.

The oldest rows of a long recording are sealed: they are compressed to a thirtieth of their size,
and rows again when somebody reads their kind.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from itertools import chain, starmap
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from autogradviz.events import EVENT_TYPES, Event, field_names
from autogradviz.log.parts import Parts
from autogradviz.log.sealed import SealedRows
from autogradviz.makers import maker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

E = TypeVar("E", bound=Event)
Row: TypeAlias = tuple[Any, ...]


class Log:
    """All events of one recording.

    Appending is safe from several threads (one ``list.append`` a row), also while one of them
    seals or copies; reading while somebody appends is not.
    """

    __slots__ = ("_events", "_rows", "_sealed", "_sealing", "_whole", "problem")

    def __init__(self, sealed: Parts | None = None) -> None:
        """Begin a log.

        Args:
            sealed: what it holds already, in a file's batches for example.
        """
        self._rows: dict[type[Event], list[Row]] = {kind: [] for kind in EVENT_TYPES}
        self._sealed = Parts() if sealed is None else sealed
        self._sealing = threading.Lock()  # held while rows move
        self._whole: dict[type[Event], list[Row]] = {}  # sealed and other rows, as read last
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
        if not self._sealed.count(kind):
            return self._rows[kind]
        self.unseal(kind)
        return self._whole[kind]

    def unseal(self, *kinds: type[Event]) -> None:
        """Make rows of what is sealed of some kinds, of all where none is named.

        Asking for each kind by itself takes twice as long.
        """
        folded = [kind for kind in kinds or EVENT_TYPES if not self._is_read(kind)]
        if not folded:
            return
        for kind, rows in self._sealed.rows(folded).items():
            rows.extend(self._rows[kind])
            rows.sort(key=itemgetter(0))
            self._whole[kind] = rows

    def _is_read(self, kind: type[Event]) -> bool:
        sealed = self._sealed.count(kind)
        known = len(self._whole.get(kind, ()))
        return not sealed or known == sealed + len(self._rows[kind])

    def recent(self, kind: type[Event]) -> list[Row]:
        """Return the rows of a kind that are not sealed."""
        return self._rows[kind]

    @property
    def recent_count(self) -> int:
        """How many events are not sealed."""
        return sum(map(len, self._rows.values()))

    @property
    def sealed(self) -> Parts:
        """What is sealed."""
        return self._sealed

    def seal(self, seq: int) -> None:
        """Seal the rows of events older than one."""
        old = {
            kind: rows[: bisect_left(rows, seq, key=itemgetter(0))]
            for kind, rows in self._rows.items()
        }
        if not any(old.values()):
            return
        sealed = SealedRows(old)
        with self._sealing:
            self._sealed.add(sealed)
            for kind, rows in old.items():
                del self._rows[kind][: len(rows)]

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
        with self._sealing:
            log = Log(Parts(self._sealed))
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
        rows = self.rows(kind)
        if events is None or len(events) != len(rows):
            events = self._events[kind] = tuple(starmap(maker(kind), rows))
        return events  # type: ignore[return-value]

    def merged(self, *kinds: type[Event]) -> Iterator[Event]:
        """Yield the events of several kinds (all when none is named), oldest first."""
        self.unseal(*kinds)
        events = chain.from_iterable(map(self.of, kinds or EVENT_TYPES))
        return iter(sorted(events, key=attrgetter("seq")))

    def __iter__(self) -> Iterator[Event]:
        return self.merged()

    def __len__(self) -> int:
        return len(self._sealed) + self.recent_count

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Log):
            return NotImplemented
        same = all(self.rows(kind) == other.rows(kind) for kind in EVENT_TYPES)
        return same and self.problem == other.problem

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<Log of {len(self):,} events>"
