"""Batches of a trace file, decoded to rows per event type on demand."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from autogradviz.event_log.arrow_message_sizes import null_arrays
from autogradviz.event_log.rows_to_arrow import complete, find_runs, to_columns
from autogradviz.events import field_names

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from autogradviz.event_log.encode_stream import Encoder
    from autogradviz.event_log.rows_to_arrow import Run
    from autogradviz.event_log.uncompressed_rows import Columns
    from autogradviz.events import Event

_END: Final = b"\xff\xff\xff\xff\x00\x00\x00\x00"


class Batch:
    """One record batch message of a file that has been checked."""

    def __init__(self, head: bytes, message: bytes | memoryview, runs: Sequence[Run]) -> None:
        """Keep a message.

        Args:
            head: the schema message of the file.
            message: the record batch message.
            runs: the runs of events of one kind in it.
        """
        self._head = head
        self._message = message
        self._runs = runs
        self.counts: Counter[type[Event]] = Counter()
        for run in runs:
            self.counts[run.kind] += run.length

    def columns(self, kinds: Collection[type[Event]]) -> Iterator[tuple[type[Event], Columns]]:
        """Yield the columns of some kinds; no other columns are decompressed."""
        for batch, runs in self._open(kinds):
            for run in runs:
                yield run.kind, to_columns(batch, run)

    def tables(self, kind: type[Event]) -> Iterator[pa.RecordBatch]:
        """Yield the columns of a kind, without creating Python objects."""
        for batch, runs in self._open([kind]):
            for run in runs:
                yield complete(batch.slice(run.start, run.length))

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield all events as columns; columns without any value are null."""
        return map(complete, open_stream(self._head, self._message))

    def messages(self, encoder: Encoder) -> Iterator[bytes | memoryview]:
        """Yield the message, encoded again if the columns of its file are others."""
        if self._head == encoder.head:
            yield self._message
        else:
            yield from map(encoder.encode, self.batches())

    def _open(self, kinds: Collection[type[Event]]) -> Iterator[tuple[pa.RecordBatch, list[Run]]]:
        """Yield the columns of some kinds, and the runs of their rows."""
        own = [run for run in self._runs if run.kind in kinds]
        if own:
            columns = {name for kind in kinds for name in field_names(kind)}
            for batch in open_stream(self._head, self._message, columns):
                yield batch, own


def read_batches(head: bytes, message: bytes | memoryview) -> Iterator[Batch]:
    """Check a message, and yield it as a batch if it has any event.

    Raises:
        DamagedError: if it has an unknown kind, or lacks a value that every event of its kind has.
        pyarrow.ArrowException: if its buffers contradict each other.
    """
    for batch in open_stream(head, message):
        runs = list(find_runs(batch))
        if runs:
            yield Batch(head, message, runs)


def open_stream(
    head: bytes, message: bytes | memoryview, columns: Collection[str] | None = None
) -> pa.RecordBatchStreamReader:
    """Return a reader of one message after its schema message, of all or of some columns.

    Columns without any value are left out: four of five bytes of a decompressed batch are theirs.
    """
    is_null = null_arrays(message)
    options = pa.ipc.IpcReadOptions(use_threads=False)
    options.included_fields = [
        place
        for place, (name, array) in enumerate(_arrays_of_columns(head))
        if (columns is None or name in columns)
        and not (array < len(is_null) and is_null[array] and name != "kind")
    ] or [0]  # no field would select all of them
    return pa.ipc.open_stream(pa.py_buffer(b"".join((head, message, _END))), options=options)


@lru_cache(maxsize=4)
def _arrays_of_columns(head: bytes) -> list[tuple[str, int]]:
    """Return each column of a schema message with the place of its array in a message."""
    found: list[tuple[str, int]] = []
    place = 0
    for column in pa.ipc.read_schema(pa.py_buffer(head)):
        found.append((column.name, place))
        place += 2 if pa.types.is_list(column.type) else 1
    return found
