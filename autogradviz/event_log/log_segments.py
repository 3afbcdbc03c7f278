"""Immutable segments of a log, decoded to rows per event type on demand."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Protocol

from autogradviz.event_log.uncompressed_rows import in_rows, joined
from autogradviz.support.pause_gc import collector_paused

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping
    from collections.abc import Set as AbstractSet

    import pyarrow as pa

    from autogradviz.event_log.encode_stream import Encoder
    from autogradviz.event_log.uncompressed_rows import Columns, Row
    from autogradviz.events import Event
    from autogradviz.events.field_types import Target


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
