"""Batches of events in the compressed form of the file, made into rows kind by kind when asked."""

from __future__ import annotations

from collections import Counter
from operator import itemgetter
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

from autogradviz.collecting import collector_paused
from autogradviz.events import field_names
from autogradviz.log.columns import complete, to_rows

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from autogradviz.events import Event
    from autogradviz.log.columns import Run
    from autogradviz.log.log import Row

_END: Final = b"\xff\xff\xff\xff\x00\x00\x00\x00"


class Batch(NamedTuple):
    """One message of a stream, and where the kinds of events lie in it."""

    message: bytes | memoryview
    runs: Sequence[Run]


class Batches:
    """Messages of one stream that are known to be whole."""

    def __init__(self, head: bytes = b"") -> None:
        """Begin with none.

        Args:
            head: the message that describes the columns.
        """
        self.head = head
        self._batches: list[Batch] = []
        self._counts: Counter[type[Event]] = Counter()

    def add(self, batch: Batch) -> None:
        """Append a batch."""
        self._batches.append(batch)
        for run in batch.runs:
            self._counts[run.kind] += run.length

    def copy(self) -> Batches:
        """Return the same batches, to which others may be added."""
        other = Batches(self.head)
        other._batches = list(self._batches)
        other._counts = Counter(self._counts)
        return other

    def count(self, kind: type[Event]) -> int:
        """Return how many events of a kind there are."""
        return self._counts[kind]

    def __len__(self) -> int:
        return self._counts.total()

    def messages(self) -> Iterator[bytes | memoryview]:
        """Yield the messages, as they stand in a file behind their head."""
        return (batch.message for batch in self._batches)

    def rows(self, kinds: Collection[type[Event]]) -> dict[type[Event], list[Row]]:
        """Return the rows of some kinds, oldest first; only their own columns are read."""
        found: dict[type[Event], list[Row]] = {kind: [] for kind in kinds}
        with collector_paused():
            for batch, runs in self._open_each(kinds):
                for run in runs:
                    found[run.kind] += to_rows(batch, run)
        for rows in found.values():
            rows.sort(key=itemgetter(0))  # several threads may have written out of turn
        return found

    def tables(self, kind: type[Event]) -> Iterator[pa.RecordBatch]:
        """Yield the columns of a kind batch by batch, without making objects of them."""
        for batch, runs in self._open_each([kind]):
            for run in runs:
                yield batch.slice(run.start, run.length)

    def whole(self) -> Iterator[pa.RecordBatch]:
        """Yield all columns of all batches; those that an older file lacks are null."""
        for message in self.messages():
            yield from map(complete, open_stream(self.head, message))

    def _open_each(
        self, kinds: Collection[type[Event]]
    ) -> Iterator[tuple[pa.RecordBatch, list[Run]]]:
        """Yield the columns of some kinds in each batch that has any, and where their rows are."""
        columns = {name for kind in kinds for name in field_names(kind)}
        for message, runs in self._batches:
            own = [run for run in runs if run.kind in kinds]
            if own:
                for batch in open_stream(self.head, message, columns):
                    yield batch, own


def open_stream(
    head: bytes, message: bytes | memoryview, columns: Collection[str] | None = None
) -> pa.RecordBatchStreamReader:
    """Return a reader of one message behind its head, of some columns only where they are named."""
    options = pa.ipc.IpcReadOptions(use_threads=False)
    if columns is not None:
        names = pa.ipc.read_schema(pa.py_buffer(head)).names
        options.included_fields = [i for i, name in enumerate(names) if name in columns]
    return pa.ipc.open_stream(pa.py_buffer(b"".join((head, message, _END))), options=options)
