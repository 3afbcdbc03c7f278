"""The log: rows of events by kind, appended while recording, read back as events.

A row is given as a plain tuple in the order of ``field_names(kind)``, at about a tenth of the cost
of a frozen dataclass, and lies in one list with all others of its kind (``rows.py``). Rows turn
into columns without a detour; tuples and events are made of them when somebody reads them.

The oldest rows of a long recording are sealed: they are compressed to a twentieth of their size,
and rows again when somebody reads their kind.
"""

from __future__ import annotations

import threading
from itertools import chain, starmap
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, TypeVar

from autogradviz.event_log.compressed import SealedRows
from autogradviz.event_log.rows import Rows
from autogradviz.event_log.segments import Parts
from autogradviz.events import EVENT_TYPES, Event, field_names
from autogradviz.fast_dataclass import maker
from autogradviz.gc_control import collector_waiting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from autogradviz.event_log.rows import Row

E = TypeVar("E", bound=Event)


class Log:
    """All events of one recording.

    Appending is safe from several threads, also while one of them seals, drops or copies; reading
    while somebody appends is not.

    Example:
        >>> len(trace.log.of(autogradviz.events.BackwardStarted))
        1
    """

    __slots__ = ("_events", "_moving", "_recent", "_sealed", "_whole", "problem")

    def __init__(self, sealed: Parts | None = None) -> None:
        """Begin a log.

        Args:
            sealed: what it holds already, in a file's batches for example.
        """
        self._recent: dict[type[Event], Rows] = {kind: Rows(kind) for kind in EVENT_TYPES}
        self._sealed = Parts() if sealed is None else sealed
        self._moving = threading.Lock()  # held while rows move
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
            log._recent[type(event)].append(attrgetter(*names)(event))
        log.sort()
        return log

    def appender(self, kind: type[Event]) -> Callable[[Row], None]:
        """Return the function that appends one row of a kind, whole in every thread's eyes."""
        return self._recent[kind].append

    def rows(self, kind: type[Event]) -> list[Row]:
        """Return the rows of a kind, oldest first, as tuples in the order of its fields."""
        self.unseal(kind)
        return self._whole.get(kind, [])

    def unseal(self, *kinds: type[Event]) -> None:
        """Make tuples of the rows of some kinds, sealed or not; of all where none is named.

        Asking for each kind by itself takes twice as long.
        """
        folded = [kind for kind in kinds or EVENT_TYPES if not self._is_read(kind)]
        if not folded:
            return
        stored = [kind for kind in folded if self._sealed.count(kind)]
        sealed = self._sealed.rows(stored) if stored else {}
        with collector_waiting():
            for kind in folded:
                rows = sealed.get(kind, []) + self._recent[kind].rows()
                rows.sort(key=itemgetter(0))  # several threads may have written out of turn
                self._whole[kind] = rows

    def _is_read(self, kind: type[Event]) -> bool:
        return len(self._whole.get(kind, ())) == self._sealed.count(kind) + len(self._recent[kind])

    def recent(self, kind: type[Event]) -> Rows:
        """Return the rows of a kind that are not sealed."""
        return self._recent[kind]

    @property
    def recent_count(self) -> int:
        """How many events are not sealed."""
        return sum(map(len, self._recent.values()))

    @property
    def sealed(self) -> Parts:
        """What is sealed."""
        return self._sealed

    def seal(self, seq: int) -> None:
        """Seal the rows of events older than one."""
        stops = {kind: stop for kind, rows in self._recent.items() if (stop := rows.find(seq))}
        if not stops:
            return
        with collector_waiting():  # it would look at every value of the columns
            sealed = SealedRows(
                {kind: self._recent[kind].columns(0, stop) for kind, stop in stops.items()}
            )
        with self._moving:
            self._sealed.add(sealed)
            for kind, stop in stops.items():
                self._recent[kind].replace(stop)

    def extend_rows(self, kind: type[Event], rows: Iterable[Row]) -> None:
        """Append rows of a kind, oldest first."""
        append = self._recent[kind].append
        for row in rows:
            append(row)

    def drop_before(self, kind: type[Event], among: int, seq: int) -> int:
        """Of the oldest ``among`` rows of a kind let go of those older than an event.

        Returns:
            How many.
        """
        stop = self._recent[kind].find(seq, stop=among)
        self._replace(kind, stop)
        return stop

    def keep_only(self, kind: type[Event], among: int, keep: Callable[[Row], bool]) -> int:
        """Of the oldest ``among`` rows of a kind keep some; return how many were let go."""
        kept = list(filter(keep, self._recent[kind].rows(among)))
        self._replace(kind, among, kept)
        return among - len(kept)

    def _replace(self, kind: type[Event], among: int, kept: Sequence[Row] = ()) -> None:
        with self._moving:
            self._recent[kind].replace(among, kept)
        self._forget_read(kind)

    def _forget_read(self, kind: type[Event]) -> None:
        self._whole.pop(kind, None)
        self._events.pop(kind, None)

    def copy(self) -> Log:
        """Return a log of the same rows, which grows by itself."""
        with self._moving:
            log = Log(Parts(self._sealed))
            for kind in EVENT_TYPES:
                log._recent[kind] = Rows(kind, self._recent[kind].values())
        return log

    def sort(self) -> None:
        """Put every kind's rows in order; threads may have appended them out of turn."""
        for kind, rows in self._recent.items():
            rows.sort()
            self._forget_read(kind)

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
