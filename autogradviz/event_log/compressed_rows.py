"""Compressed rows of a long recording, marshalled kind by kind, at a twentieth of their size.

They exist only in the process that records: saving converts them to the Arrow columns of a file
(``rows_to_arrow.py``). Marshalling takes a fifth of the time of Arrow.
"""

from __future__ import annotations

import marshal
from functools import cache
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from autogradviz.event_log.rows_to_arrow import Run, schema, to_batch, to_columns
from autogradviz.events import EVENT_TYPES, field_names
from autogradviz.support.locks_gc_and_stderr import collector_waiting

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from autogradviz.event_log.encode_arrow_stream import Encoder
    from autogradviz.event_log.uncompressed_rows import Columns
    from autogradviz.events import Event

_CODEC: Final = pa.Codec("zstd", 1)

_EACH: Final = 2
"""The ``marshal`` version without references. Numbers take a third of the time of later versions,
which look up each object among the earlier ones."""

_SHARED: Final = 4
"""The ``marshal`` version with references: equal text becomes one object again."""


class CompressedRows:
    """Compressed rows of successive events."""

    def __init__(self, columns_by_kind: Mapping[type[Event], Columns]) -> None:
        """Compress the rows of some kinds, each of which has at least one.

        Raises:
            pyarrow.ArrowException: a value is of a type that neither ``marshal`` nor a file
                supports.
        """
        self.counts = {kind: len(columns[0]) for kind, columns in columns_by_kind.items()}
        self._compressed = {
            kind: _compress(kind, columns) for kind, columns in columns_by_kind.items()
        }

    def columns(self, kinds: Collection[type[Event]]) -> Iterator[tuple[type[Event], Columns]]:
        """Yield the columns of some kinds."""
        for kind in self.counts.keys() & set(kinds):
            yield kind, _decompress(*self._compressed[kind])

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield all events as columns."""
        with collector_waiting():
            batch = to_batch(
                (kind, _decompress(*content)) for kind, content in self._compressed.items()
            )
        yield batch

    def messages(self, encoder: Encoder) -> Iterator[bytes]:
        """Yield all events as messages of a file."""
        return map(encoder.encode, self.batches())


def _compress(kind: type[Event], columns: Columns) -> tuple[bytes, int]:
    """Return compressed rows, and their size before compression.

    Numbers are plain Python numbers. Text may be of a user's type that ``marshal`` rejects, or
    takes for bytes, as that of NumPy: such rows are converted through Arrow columns.
    """
    try:
        _require_plain(kind, columns)
        content = _marshal(kind, columns)
    except ValueError:
        content = _marshal(kind, _through_arrow(kind, columns))
    return _CODEC.compress(content, asbytes=True), len(content)


def _marshal(kind: type[Event], columns: Columns) -> bytes:
    return marshal.dumps(
        [
            marshal.dumps(column, format_)
            for column, format_ in zip(columns, _formats()[kind], strict=True)
        ]
    )


def _decompress(content: bytes, nbytes: int) -> Columns:
    columns = marshal.loads(_CODEC.decompress(content, nbytes, asbytes=True))  # noqa: S302 - it never leaves this process
    return list(map(marshal.loads, columns))


def _require_plain(kind: type[Event], columns: Columns) -> None:
    """Check that all text is of type ``str``."""
    for column, format_ in zip(columns, _formats()[kind], strict=True):
        if format_ == _SHARED and not set(map(type, column)) <= {str, type(None)}:
            message = f"a {kind.__name__} with text of another type"
            raise ValueError(message)


@cache
def _formats() -> dict[type[Event], list[int]]:
    """Return the ``marshal`` version for each field of each kind."""
    texts = {column.name for column in schema() if column.type == pa.string()}
    return {
        kind: [_SHARED if name in texts else _EACH for name in field_names(kind)]
        for kind in EVENT_TYPES
    }


def _through_arrow(kind: type[Event], columns: Columns) -> Columns:
    """Return columns as they would be read from a file."""
    return to_columns(to_batch([(kind, columns)]), Run(kind, 0, len(columns[0])))
