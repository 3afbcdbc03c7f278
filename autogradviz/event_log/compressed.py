"""Rows of a long recording at a twentieth of their size: marshalled and compressed, kind by kind.

Only the process that recorded ever sees them: a file holds Arrow columns (``batches.py``), which
are made of these when somebody saves them. Marshalling takes a fifth of the time of that.
"""

from __future__ import annotations

import marshal
from functools import cache
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from autogradviz.event_log.arrow_schema import Run, schema, to_batch, to_columns
from autogradviz.events import EVENT_TYPES, field_names
from autogradviz.gc_control import collector_waiting

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from autogradviz.event_log.arrow_stream import Encoder
    from autogradviz.event_log.rows import Columns, Row
    from autogradviz.events import Event

_CODEC: Final = pa.Codec("zstd", 1)

_EACH: Final = 2
"""The format of ``marshal`` that writes each object where it stands: for numbers, at a third
of the time of the later ones, which look each up among all before it."""

_SHARED: Final = 4
"""The one that writes an object once: equal text is one object again."""


class SealedRows:
    """Rows of successive events."""

    def __init__(self, columns_by_kind: Mapping[type[Event], Columns]) -> None:
        """Seal the rows of some kinds, of which each has one.

        Raises:
            pyarrow.ArrowException: a value is of a type that neither marshalling takes nor a file.
        """
        self.counts = {kind: len(columns[0]) for kind, columns in columns_by_kind.items()}
        self._sealed = {kind: _seal(kind, columns) for kind, columns in columns_by_kind.items()}

    def rows(self, kinds: Collection[type[Event]]) -> Iterator[tuple[type[Event], list[Row]]]:
        """Yield the rows of each of some kinds that is here."""
        for kind in self.counts.keys() & set(kinds):
            yield kind, list(zip(*_unseal(*self._sealed[kind]), strict=True))

    def whole(self) -> Iterator[pa.RecordBatch]:
        """Yield all as columns."""
        with collector_waiting():
            batch = to_batch((kind, _unseal(*sealed)) for kind, sealed in self._sealed.items())
        yield batch

    def messages(self, encoder: Encoder) -> Iterator[bytes]:
        """Yield all as it stands in a file."""
        return map(encoder.encode, self.whole())


def _seal(kind: type[Event], columns: Columns) -> tuple[bytes, int]:
    """Return rows, and how many bytes they are uncompressed.

    Numbers are Python's own: PyTorch gave them, or we counted. Text may be somebody's, and of a
    type that is refused, or taken for bytes, as NumPy's is: such rows go through columns of Arrow.
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


def _unseal(content: bytes, nbytes: int) -> Columns:
    columns = marshal.loads(_CODEC.decompress(content, nbytes, asbytes=True))  # noqa: S302 - it never leaves this process
    return list(map(marshal.loads, columns))


def _require_plain(kind: type[Event], columns: Columns) -> None:
    """Check that all text is of Python's own type."""
    for column, format_ in zip(columns, _formats()[kind], strict=True):
        if format_ == _SHARED and not set(map(type, column)) <= {str, type(None)}:
            message = f"a {kind.__name__} with text of another type"
            raise ValueError(message)


@cache
def _formats() -> dict[type[Event], list[int]]:
    """Return the format of each field of each kind."""
    texts = {column.name for column in schema() if column.type == pa.string()}
    return {
        kind: [_SHARED if name in texts else _EACH for name in field_names(kind)]
        for kind in EVENT_TYPES
    }


def _through_arrow(kind: type[Event], columns: Columns) -> Columns:
    """Return columns as a file would give them back."""
    return to_columns(to_batch([(kind, columns)]), Run(kind, 0, len(columns[0])))
