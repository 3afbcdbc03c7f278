"""The messages of an Arrow stream, and their sizes before they are decompressed."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator


# Arrow has no limit: it allocates and decompresses 800 MB for a batch of zeros that takes 25 kB in
# the file. So the sizes are read from the file first, and a batch that would become too large is
# reported as damage.
#
# An Arrow stream is a sequence of messages: a marker, the size of the metadata (a flatbuffer), the
# metadata, a body. The body of a record batch is a sequence of compressed buffers, each of which
# begins with its decompressed size.


MAX_BATCH_NBYTES: Final = 2**28
"""Limit of one decompressed batch, a hundred times the largest that a recording writes."""

MAX_RATIO: Final = 500
"""Limit of the compression ratio of a file, ten times that of recordings."""

_FREE_NBYTES: Final = 2**26  # small files may be denser than that
_MARK: Final = 0xFFFFFFFF
_ROOT: Final = 8  # bytes before the metadata of a message
_RECORD_BATCH: Final = 3
_HEADER_TYPE, _HEADER, _BODY_LENGTH = 1, 2, 3  # fields of a message
_LENGTH, _ARRAYS, _BUFFERS, _COMPRESSION = 0, 1, 2, 3  # fields of a record batch
_EMPTY: Final = 8  # a buffer without even a size


class OversizedError(ValueError):
    """A batch would be larger than any that a recording writes."""


class Message(NamedTuple):
    """The position of one message in the file."""

    start: int
    end: int
    rows: int | None  # None for a message that is not a record batch


def read_messages(content: bytes) -> Iterator[Message]:
    """Yield the messages of a stream, up to its end-of-stream marker or the end of the file.

    Raises:
        ValueError: if the next one is cut off or damaged.
        OversizedError: if its batch is too large.
    """
    place, total = 0, 0
    limit = _FREE_NBYTES + MAX_RATIO * len(content)
    while place < len(content):
        try:
            mark, size = struct.unpack_from("<Ii", content, place)
            if mark == _MARK and size == 0:
                return
            message, nbytes = _read_message(content, place, mark, size)
        except (struct.error, IndexError) as error:
            reason = "a batch is cut off"
            raise ValueError(reason) from error
        total += nbytes
        if nbytes > MAX_BATCH_NBYTES or total > limit:
            reason = f"a batch would take {nbytes:,} bytes"
            raise OversizedError(reason)
        yield message
        place = message.end


def null_arrays(message: bytes | memoryview) -> list[bool]:
    """Return for each array of a record batch message whether all its values are null.

    The arrays are those of the columns in order, each followed by the array of its lists' values.
    A message of another type has none.

    Raises:
        ValueError: if the message is damaged.
    """
    try:
        table = Table(message, _ROOT + _number("<I", message, _ROOT))
        if table.scalar(_HEADER_TYPE, "<B") != _RECORD_BATCH:
            return []
        arrays = Table(message, table.offset(_HEADER)).pairs(_ARRAYS)
        return [0 < length == nulls for length, nulls in arrays]
    except (struct.error, IndexError) as error:
        reason = "a batch is damaged"
        raise ValueError(reason) from error


def _read_message(content: bytes, place: int, mark: int, size: int) -> tuple[Message, int]:
    """Return a message, and the size of its batch after decompression."""
    metadata = place + _ROOT
    body = metadata + size
    table = Table(content, metadata + _number("<I", content, metadata))
    body_nbytes = table.scalar(_BODY_LENGTH, "<q")
    end = body + body_nbytes
    if mark != _MARK or size < 0 or body_nbytes < 0 or end > len(content):
        reason = "a batch is cut off"
        raise ValueError(reason)
    if table.scalar(_HEADER_TYPE, "<B") != _RECORD_BATCH:
        return Message(place, end, None), 0
    batch = Table(content, table.offset(_HEADER))
    rows = batch.scalar(_LENGTH, "<q")
    compressed = batch.has(_COMPRESSION)
    nbytes = sum(
        _decompressed_size(content, body + offset, length, end) if compressed else length
        for offset, length in batch.pairs(_BUFFERS)
    )
    return Message(place, end, rows), max(nbytes, rows)


def _decompressed_size(content: bytes, start: int, length: int, end: int) -> int:
    if length < _EMPTY:
        return 0
    if start + length > end:
        reason = "a buffer lies outside its batch"
        raise ValueError(reason)
    size = _number("<q", content, start)
    return length if size == -1 else abs(size)  # -1: not compressed


def _number(kind: str, content: bytes | bytearray | memoryview, place: int) -> int:
    if place < 0:  # which struct would count from the end
        raise IndexError
    found: int = struct.unpack_from(kind, content, place)[0]
    return found


class Table:
    """A table of a flatbuffer, whose fields are found through its vtable."""

    def __init__(self, content: bytes | bytearray | memoryview, place: int) -> None:
        self._content = content
        self._place = place
        self._index = place - _number("<i", content, place)
        self._index_size = _number("<H", content, self._index)

    def field(self, number: int) -> int | None:
        """Return the position of a field, None if it is absent."""
        entry = 4 + 2 * number
        if entry + 2 > self._index_size:
            return None
        offset = _number("<H", self._content, self._index + entry)
        return self._place + offset if offset else None

    def has(self, number: int) -> bool:
        """Return whether a field is present."""
        return self.field(number) is not None

    def scalar(self, number: int, kind: str) -> int:
        """Return a scalar field, 0 if it is absent."""
        place = self.field(number)
        return 0 if place is None else _number(kind, self._content, place)

    def offset(self, number: int) -> int:
        """Return the position of a table or a vector."""
        place = self.field(number)
        if place is None:
            raise IndexError
        return place + _number("<I", self._content, place)

    def pairs(self, number: int) -> Iterator[tuple[int, int]]:
        """Yield the pairs of a vector of structs of two int64."""
        place = self.field(number)
        if place is None:
            return
        vector = self.offset(number)
        count = _number("<I", self._content, vector)
        if 16 * count > len(self._content):
            raise IndexError
        for each in range(count):
            first, second = struct.unpack_from("<qq", self._content, vector + 4 + 16 * each)
            if first < 0 or second < 0:
                raise IndexError
            yield first, second
