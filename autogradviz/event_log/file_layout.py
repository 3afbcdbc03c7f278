"""The layout of a file: a stream of messages between two marks, and an index of them at the end.

This is the Arrow IPC file format. The index (a flatbuffer) lets Arrow readers open a file without
reading its columns. Nothing before the index depends on it, so a file is written message by
message, and one without an index is readable as a stream.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from autogradviz.event_log.arrow_message_sizes import Table
from autogradviz.event_log.encode_stream import FORMAT_VERSION, Encoder, described_schema

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

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
