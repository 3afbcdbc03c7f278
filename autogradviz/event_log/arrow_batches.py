"""Batches of events in the compressed form of the file, made into rows kind by kind when asked."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from autogradviz.event_log.arrow_schema import complete, to_rows
from autogradviz.events import field_names

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from autogradviz.event_log.arrow_schema import Run
    from autogradviz.event_log.arrow_stream import Encoder
    from autogradviz.event_log.rows import Row
    from autogradviz.events import Event

_END: Final = b"\xff\xff\xff\xff\x00\x00\x00\x00"


class Batch:
    """One message of a file that is known to be whole."""

    def __init__(self, head: bytes, message: bytes | memoryview, runs: Sequence[Run]) -> None:
        """Take a message.

        Args:
            head: the message of the file that describes the columns.
            message: the batch itself.
            runs: where the kinds of events lie in it.
        """
        self._head = head
        self._message = message
        self._runs = runs
        self.counts: Counter[type[Event]] = Counter()
        for run in runs:
            self.counts[run.kind] += run.length

    def rows(self, kinds: Collection[type[Event]]) -> Iterator[tuple[type[Event], list[Row]]]:
        """Yield the rows of each of some kinds that is here; only their own columns are read."""
        for batch, runs in self._open(kinds):
            for run in runs:
                yield run.kind, to_rows(batch, run)

    def tables(self, kind: type[Event]) -> Iterator[pa.RecordBatch]:
        """Yield the columns of a kind, without making objects of them."""
        for batch, runs in self._open([kind]):
            for run in runs:
                yield batch.slice(run.start, run.length)

    def whole(self) -> Iterator[pa.RecordBatch]:
        """Yield all as columns; those that an older file lacks are null."""
        return map(complete, open_stream(self._head, self._message))

    def messages(self, encoder: Encoder) -> Iterator[bytes | memoryview]:
        """Yield all as it stands in a file of today: as it is, unless it is of an older one."""
        if self._head == encoder.head:
            yield self._message
        else:
            yield from map(encoder.encode, self.whole())

    def _open(self, kinds: Collection[type[Event]]) -> Iterator[tuple[pa.RecordBatch, list[Run]]]:
        """Yield the columns of some kinds, if any is here, and where their rows are."""
        own = [run for run in self._runs if run.kind in kinds]
        if own:
            columns = {name for kind in kinds for name in field_names(kind)}
            for batch in open_stream(self._head, self._message, columns):
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
