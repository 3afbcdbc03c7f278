"""Layout of trace files, and their batches."""

from __future__ import annotations

import struct
from collections import Counter
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from autogradviz.event_log.arrow_message_sizes import Table, null_arrays
from autogradviz.event_log.encode_arrow_stream import FORMAT_VERSION, Encoder, described_schema
from autogradviz.event_log.rows_to_arrow import complete, find_runs, to_columns
from autogradviz.events import field_names

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from pathlib import Path

    from autogradviz.event_log.rows_to_arrow import Run
    from autogradviz.event_log.uncompressed_rows import Columns
    from autogradviz.events import Event


# --- batches of a trace file, decoded to rows per event type on demand ----------------------------


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


# --- file layout ----------------------------------------------------------------------------------
#
# The layout of a file: a stream of messages between two marks, and an index of them at the end.
#
# This is the Arrow IPC file format. The index (a flatbuffer) lets Arrow readers open a file without
# reading its columns. Nothing before the index depends on it, so a file is written message by
# message, and one without an index is readable as a stream.


MARK: Final = b"ARROW1"

BEGIN: Final = MARK + b"\0\0"
"""The first bytes of a file."""

_INDEX_SIZE: Final = struct.Struct("<i")
_BLOCK: Final = struct.Struct("<qi4xq")  # position of a message, size of its head and of its body
_RECORD_BATCHES: Final = 3  # field of the index
_MESSAGE: Final = struct.Struct("<Ii")  # mark and size of the head of a message


class Writer:
    """Creates the pieces of a file, in their order."""

    def __init__(self) -> None:
        self.encoder = Encoder()
        self.head = BEGIN + self.encoder.head
        """The first piece."""
        self._blocks: list[tuple[int, int, int]] = []
        self._place = len(self.head)

    def add(self, message: bytes | memoryview) -> bytes | memoryview:
        """Return the message of a batch, which is the next piece of the file."""
        head = _MESSAGE.size + _MESSAGE.unpack_from(message)[1]
        self._blocks.append((self._place, head, len(message) - head))
        self._place += len(message)
        return message

    def end(self, summary: bytes = b"") -> bytes:
        """Return the last piece; nothing can be added after it.

        Args:
            summary: bytes that only autogradviz reads, between the stream and the index.
        """
        index = _index(self._blocks)
        return b"".join((self.encoder.end(), summary, index, _INDEX_SIZE.pack(len(index)), MARK))


def begin_size(content: bytes) -> int:
    """Return the position of the stream in a file: 8, or 0 in a plain stream."""
    return len(BEGIN) if content.startswith(BEGIN) else 0


def index_size(end: bytes) -> int:
    """Return the number of bytes at the end of a file that are its index, 0 if it has none.

    Args:
        end: the last bytes of the file, at least ten.
    """
    if not end.endswith(MARK) or len(end) < len(MARK) + _INDEX_SIZE.size:
        return 0
    size = int(_INDEX_SIZE.unpack_from(end, len(end) - len(MARK) - _INDEX_SIZE.size)[0])
    return max(0, size) + _INDEX_SIZE.size + len(MARK)


def is_arrow_file(path: Path) -> bool:
    """Return whether any Arrow reader opens a file, with the columns of this version."""
    try:
        with pa.ipc.open_file(path) as found:
            metadata = found.schema.metadata or {}
    except (pa.ArrowException, OSError):
        return False
    return bool(metadata.get(b"format_version") == str(FORMAT_VERSION).encode())


def _index(blocks: Sequence[tuple[int, int, int]]) -> bytes:
    """Return an index: that of an empty file, with another list of batches after it."""
    found = bytearray(_empty_index())
    found += bytes(-(len(found) + 4) % 8)  # its items are aligned to 8 bytes
    place = Table(found, struct.unpack_from("<I", found)[0]).field(_RECORD_BATCHES)
    assert place is not None
    struct.pack_into("<I", found, place, len(found) - place)
    found += struct.pack("<I", len(blocks))
    for block in blocks:
        found += _BLOCK.pack(*block)
    return bytes(found)


@cache
def _empty_index() -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, described_schema()):
        pass
    content: bytes = sink.getvalue().to_pybytes()
    end = len(content) - len(MARK) - _INDEX_SIZE.size
    return content[end - _INDEX_SIZE.unpack_from(content, end)[0] : end]
