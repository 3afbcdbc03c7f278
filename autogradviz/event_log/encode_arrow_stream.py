"""Conversion of rows of events to the messages of an Arrow IPC stream, of which a file consists.

Each message is one zstd-compressed batch of columns, which can be read by itself after the schema
message. Events are split into batches in the order of their numbers, so the readable part of a
torn stream is a recording that stops early.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Final, TypeAlias

import pyarrow as pa

from autogradviz._version import __version__
from autogradviz.event_log.arrow_message_sizes import read_messages
from autogradviz.event_log.rows_to_arrow import schema, to_batch
from autogradviz.events import EVENT_TYPES, Event

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from autogradviz.event_log.uncompressed_rows import Columns, Rows

    Pieces: TypeAlias = list[tuple[type[Event], Columns]]

FORMAT: Final = b"autogradviz-trace"

FORMAT_VERSION: Final = 3
"""Version of the meaning of a file's columns; a missing column is one of nulls."""

CHUNK: Final = 16_384
"""Events per batch. A batch takes at least 10 kB, and a torn file loses up to one batch."""


def described_schema() -> pa.Schema:
    """Return the schema of a file, with the metadata that identifies it as a trace."""
    metadata = {
        b"format": FORMAT,
        b"format_version": str(FORMAT_VERSION).encode(),
        b"autogradviz_version": __version__.encode(),
    }
    return schema().with_metadata(metadata)


def write_options() -> pa.ipc.IpcWriteOptions:
    """Return the options for writing batches, without threads that outlive it."""
    return pa.ipc.IpcWriteOptions(compression="zstd", use_threads=False)


class Encoder:
    """Encodes batches as messages of one stream."""

    def __init__(self) -> None:
        self._sink = _Sink()
        self._writer = pa.ipc.new_stream(
            pa.PythonFile(self._sink, "w"), described_schema(), options=write_options()
        )
        # Arrow writes the schema with the first batch, which is discarded here.
        self._writer.write_batch(to_batch([]))
        begun = self._sink.take()
        self.head = begun[: next(read_messages(begun)).end]
        """The schema message, with which a stream begins."""

    def encode(self, batch: pa.RecordBatch) -> bytes:
        """Return the message of one batch."""
        self._writer.write_batch(batch)
        return self._sink.take()

    def end(self) -> bytes:
        """Return the end-of-stream marker; nothing can be encoded after it."""
        self._writer.close()
        return self._sink.take()


class _Sink:
    """A file in memory that is read and cleared after each message."""

    closed = False

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def write(self, part: bytes) -> int:
        self._parts.append(bytes(part))
        return len(part)

    def flush(self) -> None:
        """Do nothing; there is no buffer."""

    def take(self) -> bytes:
        """Return the bytes written since the last call."""
        content = b"".join(self._parts)
        self._parts.clear()
        return content


def split(rows_by_kind: Mapping[type[Event], Rows]) -> Iterator[Pieces]:
    """Yield the rows of about ``CHUNK`` successive events at a time, by kind."""
    rows = [rows_by_kind[kind] for kind in EVENT_TYPES]
    seqs = sorted(chain.from_iterable(each.column(0) for each in rows))
    starts = [0] * len(rows)
    for first in range(0, len(seqs), CHUNK):
        is_last = first + CHUNK >= len(seqs)
        stops = [
            len(each) if is_last else each.find(seqs[first + CHUNK], start)
            for each, start in zip(rows, starts, strict=True)
        ]
        pieces = [
            (kind, each.columns(start, stop))
            for kind, each, start, stop in zip(EVENT_TYPES, rows, starts, stops, strict=True)
            if start < stop
        ]
        starts = stops
        if pieces:
            yield pieces


def to_batches(rows_by_kind: Mapping[type[Event], Rows]) -> Iterator[pa.RecordBatch]:
    """Yield rows as batches of columns, in the order of their numbers."""
    return map(to_batch, split(rows_by_kind))
