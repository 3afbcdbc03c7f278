"""The log: rows of events by kind, appended while recording, read back as events.

A row is appended as a plain tuple in the order of ``field_names(kind)``, at about a tenth of the
cost of a frozen dataclass, to one flat list for each kind (``uncompressed_rows.py``). Flat lists
are converted to columns directly. A kind is read as columns, one list for each field; tuples and
events are created from them on demand.

The oldest rows of a long recording are compressed to a twentieth of their size
(``compressed_rows.py``), and decompressed when their kind is read.
"""

from __future__ import annotations

from collections import Counter
from itertools import chain, repeat, starmap
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from autogradviz.errors import RecordingStateError
from autogradviz.event_log.compressed_rows import CompressedRows
from autogradviz.event_log.uncompressed_rows import Rows, in_rows, joined, total
from autogradviz.events import EVENT_TYPES, Event, field_names
from autogradviz.support.escape_surrogates import escape_surrogates
from autogradviz.support.fast_dataclass_constructor import maker
from autogradviz.support.locks_gc_and_stderr import (
    collector_paused,
    collector_waiting,
    new_lock,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet
    from pathlib import Path

    import pyarrow as pa

    from autogradviz.event_log.encode_arrow_stream import Encoder
    from autogradviz.event_log.uncompressed_rows import Columns, Row
    from autogradviz.events.field_types import Target


E = TypeVar("E", bound=Event)


class Log:
    """All events of one recording.

    Appending is safe from several threads, also while one of them compresses, drops or copies
    rows. Reading while another thread appends is not.

    Example:
        >>> len(trace.log.of(autogradviz.events.BackwardStarted))
        1
    """

    __slots__ = ("_columns", "_events", "_moving", "_recent", "_segments", "problem")

    def __init__(self, segments: Segments | None = None) -> None:
        """Create a log.

        Args:
            segments: its oldest events, for example the batches of a file.
        """
        self._recent: dict[type[Event], Rows] = {kind: Rows(kind) for kind in EVENT_TYPES}
        self._segments = Segments() if segments is None else segments
        self._moving = new_lock()  # held while rows move
        self._columns: dict[type[Event], Columns] = {}  # of kinds that were read
        self._events: dict[type[Event], tuple[Event, ...]] = {}
        self.problem: str | None = None
        """One line about what is missing from a torn file, None for a complete recording."""

    @classmethod
    def from_events(cls, events: Iterable[Event]) -> Log:
        """Return a log of events, which may be in any order."""
        log = cls()
        for event in events:
            names = field_names(type(event))
            log._recent[type(event)].append(attrgetter(*names)(event))
        log.sort()
        return log

    def appender(self, kind: type[Event]) -> Callable[[Row], None]:
        """Return the function that atomically appends one row of a kind."""
        return self._recent[kind].append

    def columns(self, kind: type[Event]) -> Columns:
        """Return one list for each field of a kind, oldest event first. Do not change them."""
        self.decode(kind)
        return self._columns.get(kind) or [[] for _ in field_names(kind)]

    def column(self, kind: type[Event], name: str) -> list[Any]:
        """Return the values of one field of a kind, oldest event first. Do not change the list."""
        return self.columns(kind)[field_names(kind).index(name)]

    def fields(self, kind: type[Event], *names: str) -> Iterator[tuple[Any, ...]]:
        """Yield the values of some fields of each event of a kind, oldest event first.

        This takes a tenth of the time of creating events, so kinds that occur by the hundred
        thousand are read with it.
        """
        columns, every = self.columns(kind), field_names(kind)
        return zip(*[columns[every.index(name)] for name in names], strict=True)

    def merged_fields(self, kinds: Sequence[type[Event]], *names: str) -> Iterator[tuple[Any, ...]]:
        """Yield the kind and some fields of each event of some kinds, oldest event first.

        A field that a kind does not have is None.
        """
        rows: list[tuple[Any, ...]] = []
        for kind in kinds:
            columns = dict(zip(field_names(kind), self.columns(kind), strict=True))
            chosen = [columns.get(name, repeat(None)) for name in names]
            rows += zip(columns["seq"], repeat(kind), *chosen, strict=False)
        rows.sort(key=itemgetter(0))
        return (row[1:] for row in rows)

    def rows(self, kind: type[Event]) -> list[Row]:
        """Return the rows of a kind, oldest first, as tuples in the order of its fields."""
        return list(zip(*self.columns(kind), strict=True))

    def decode(self, *kinds: type[Event]) -> None:
        """Read the columns of some kinds, or of all kinds if none is named.

        One call for all kinds takes half as long as one call for each kind.
        """
        unread = [kind for kind in kinds or EVENT_TYPES if not self._is_read(kind)]
        if not unread:
            return
        stored = [kind for kind in unread if self._segments.count(kind)]
        older = self._segments.columns(stored) if stored else {}
        with collector_waiting():
            for kind in unread:
                columns = self._recent[kind].columns()
                if kind in older:
                    columns = joined(older.pop(kind), columns)
                self._columns[kind] = _in_order(columns)

    def _is_read(self, kind: type[Event]) -> bool:
        return self._count_read(kind) == self.count(kind)

    def _count_read(self, kind: type[Event]) -> int:
        return len(self._columns[kind][0]) if kind in self._columns else 0

    def recent(self, kind: type[Event]) -> Rows:
        """Return the rows of a kind that are not compressed."""
        return self._recent[kind]

    @property
    def recent_count(self) -> int:
        """Number of events that are not compressed."""
        return total(self._recent.values())

    @property
    def segments(self) -> Segments:
        """Compressed events, or the batches of a file."""
        return self._segments

    def compress(self, seq: int) -> None:
        """Compress the rows of events older than an event."""
        stops = {kind: stop for kind, rows in self._recent.items() if (stop := rows.find(seq))}
        if not stops:
            return
        with collector_waiting():  # it would visit every value of the columns
            compressed = CompressedRows(
                {kind: self._recent[kind].columns(0, stop) for kind, stop in stops.items()}
            )
        with self._moving:
            self._segments.add(compressed)
            for kind, stop in stops.items():
                self._recent[kind].replace(stop)

    def extend_rows(self, kind: type[Event], rows: Iterable[Row]) -> None:
        """Append rows of a kind, oldest first."""
        append = self._recent[kind].append
        for row in rows:
            append(row)

    def count(self, kind: type[Event]) -> int:
        """Return the number of events of a kind."""
        return self._segments.count(kind) + len(self._recent[kind])

    def remove_segment(
        self, segment: Segment, kept: Iterable[type[Event]] = (), rest: Segment | None = None
    ) -> None:
        """Remove a segment.

        Args:
            segment: the segment.
            kept: kinds of which the rows are appended to those not compressed.
            rest: a segment with some of its other events, which takes its place.
        """
        kinds = tuple(kept)
        columns_by_kind = list(segment.columns(kinds)) if kinds else ()
        with self._moving:
            for kind, columns in columns_by_kind:
                recent = self._recent[kind]
                recent.append(chain.from_iterable(zip(*columns, strict=True)))
                recent.sort()
            self._segments.remove(segment)
            if rest is not None:
                self._segments.add(rest)
        for kind in segment.counts:
            self._discard_read(kind)

    def drop_before(self, kind: type[Event], among: int, seq: int) -> int:
        """Drop the rows older than an event, among the oldest ``among`` rows of a kind.

        Returns:
            The number of dropped rows.
        """
        stop = self._recent[kind].find(seq, stop=among)
        if stop:
            with self._moving:
                self._recent[kind].replace(stop)
            self._discard_read(kind)
        return stop

    def keep_only(self, kind: type[Event], among: int, kept: Iterable[bool]) -> int:
        """Keep some of the oldest ``among`` rows of a kind.

        Args:
            kind: a kind of events.
            among: the number of rows from which some are dropped.
            kept: whether to keep each row, the oldest first.

        Returns:
            The number of dropped rows.
        """
        with self._moving:
            dropped = self._recent[kind].keep_only(among, kept)
        if dropped:
            self._discard_read(kind)
        return dropped

    def _discard_read(self, kind: type[Event]) -> None:
        self._columns.pop(kind, None)
        self._events.pop(kind, None)

    def copy(self) -> Log:
        """Return an independent log with the same rows."""
        with self._moving:
            log = Log(Segments(self._segments))
            for kind in EVENT_TYPES:
                log._recent[kind] = Rows(kind, self._recent[kind].values())
        return log

    def sort(self) -> None:
        """Sort the rows of every kind; threads may have appended them out of order."""
        for kind, rows in self._recent.items():
            rows.sort()
            self._discard_read(kind)

    def of(self, kind: type[E]) -> tuple[E, ...]:
        """Return the events of a kind, oldest first."""
        events = self._events.get(kind)
        columns = self.columns(kind)
        if events is None or len(events) != len(columns[0]):
            rows = zip(*columns, strict=True)
            events = self._events[kind] = tuple(starmap(maker(kind), rows))
        return events  # type: ignore[return-value]

    def merged(self, *kinds: type[Event]) -> Iterator[Event]:
        """Yield the events of some kinds, or of all kinds if none is named, oldest first."""
        self.decode(*kinds)
        events = chain.from_iterable(map(self.of, kinds or EVENT_TYPES))
        return iter(sorted(events, key=attrgetter("seq")))

    def __iter__(self) -> Iterator[Event]:
        return self.merged()

    def __len__(self) -> int:
        return len(self._segments) + self.recent_count

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Log):
            return NotImplemented
        pairs = ((self.columns(kind), other.columns(kind)) for kind in EVENT_TYPES)
        same = all(one == two or _encodable(one) == _encodable(two) for one, two in pairs)
        return same and self.problem == other.problem

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<Log of {len(self):,} events>"


def _encodable(value: Any) -> Any:
    """Return columns or a value of them with the text that a file has of it."""
    if isinstance(value, (list, tuple)):
        return type(value)(map(_encodable, value))
    return escape_surrogates(value) if isinstance(value, str) else value


def _in_order(columns: Columns) -> Columns:
    """Return columns in the order of the event numbers; threads may append out of order."""
    seqs = columns[0]
    if seqs == sorted(seqs):
        return columns
    order = sorted(range(len(seqs)), key=seqs.__getitem__)
    return [[column[place] for place in order] for column in columns]


# --- immutable segments of a log, decoded to rows per event type on demand ------------------------


class Segment(Protocol):
    """A batch of a file, or compressed rows of a recording."""

    @property
    def counts(self) -> Mapping[type[Event], int]:
        """Number of events of each kind."""

    def columns(self, kinds: Collection[type[Event]]) -> Iterable[tuple[type[Event], Columns]]:
        """Return the columns of some kinds, as lists that the caller may change."""

    def batches(self) -> Iterable[pa.RecordBatch]:
        """Return all events as columns."""

    def messages(self, encoder: Encoder) -> Iterable[bytes | memoryview]:
        """Return all events as messages of a file."""


class EngineSegment(Segment, Protocol):
    """Events as an engine wrote them; the ids in them can be read without decoding."""

    def used_ids(self) -> Mapping[Target, AbstractSet[int]]:
        """Return the ids of definitions that the events refer to."""

    def only(self, kind: type[Event]) -> EngineSegment:
        """Return the events of one kind."""

    def decode_defined(self, kind: type[Event], ids: AbstractSet[int]) -> list[Any]:
        """Return the values of the definitions of some ids, one row after the other."""


class Segments:
    """All segments of a log, oldest first."""

    def __init__(self, segments: Iterable[Segment] = ()) -> None:
        self._segments: list[Segment] = []
        self._counts: Counter[type[Event]] = Counter()
        for segment in segments:
            self.add(segment)

    def add(self, segment: Segment) -> None:
        """Append a segment."""
        self._segments.append(segment)
        self._counts.update(segment.counts)

    def remove(self, segment: Segment) -> None:
        """Remove a segment."""
        self._segments.remove(segment)
        self._counts.subtract(segment.counts)

    def count(self, kind: type[Event]) -> int:
        """Return the number of events of a kind."""
        return self._counts[kind]

    def __len__(self) -> int:
        return self._counts.total()

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def columns(self, kinds: Collection[type[Event]]) -> dict[type[Event], Columns]:
        """Return the columns of those of some kinds that occur, oldest segment first."""
        found: dict[type[Event], Columns] = {}
        with collector_paused():
            for segment in self._segments:
                for kind, columns in segment.columns(kinds):
                    found[kind] = joined(found[kind], columns) if kind in found else columns
        return found


def rows_of_segment(
    segment: Segment, kinds: Collection[type[Event]]
) -> Iterator[tuple[type[Event], list[Row]]]:
    """Yield the rows of some kinds."""
    for kind, columns in segment.columns(kinds):
        yield kind, in_rows(columns)


# --- the events of a trace whose recording may still be open --------------------------------------


class LogSource:
    """Reads the events of a trace: from nowhere while it is recorded, then from memory or a file.

    Attributes:
        copy: returns a copy of the events recorded so far; None unless the recording is open.
        add_step_listener: has a function called after each step with the number of events so far;
            None unless the recording is open.
        path: the file to which all events of an open recording are written, if there is one.
        find_object: returns what identifies a live module or tensor in the recording; None for a
            trace from a file. See ``recorder/names_in_program.py``.
    """

    def __init__(self) -> None:
        self.copy: Callable[[], Log] | None = None
        self.add_step_listener: Callable[[Callable[[int], None]], None] | None = None
        self.path: Path | None = None
        self.find_object: Callable[[object], str | tuple[str, int] | None] | None = None
        self._read: Callable[[], Log] | None = None
        self._reason = "the trace is being recorded; leave the with block before reading it"

    @classmethod
    def of(cls, log: Log) -> LogSource:
        """Return the source of a complete log."""
        source = cls()
        source.finish(lambda: log)
        return source

    @property
    def is_ready(self) -> bool:
        """Whether the events can be read."""
        return self._read is not None

    def read(self) -> Log:
        """Return all events.

        Raises:
            RecordingStateError: if the recording is open, or belongs to a parent process.
        """
        if self._read is None:
            raise RecordingStateError(self._reason)
        return self._read()

    def finish(self, read: Callable[[], Log]) -> None:
        """Make the events of a finished recording readable."""
        self._read, self.copy, self.add_step_listener, self.path = read, None, None, None

    def detach_after_fork(self) -> None:
        """Refuse to be read in a forked child: the recording belongs to the parent."""
        self.copy = self.add_step_listener = self.path = None
        self._reason = "this process was forked while recording; only the parent has the trace"
