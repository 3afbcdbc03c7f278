"""Rows of a long recording at a thirtieth of their size: marshalled and compressed, kind by kind.

Only the process that recorded ever sees them: a file holds Arrow columns (``batches.py``), which
are made of these rows when somebody saves them. Marshalling takes a fifth of the time of that.
"""

from __future__ import annotations

import marshal
from functools import cache
from operator import itemgetter
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from autogradviz.collecting import collector_waiting
from autogradviz.events import EVENT_TYPES, field_names
from autogradviz.log.columns import Run, schema, to_batch, to_rows

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from autogradviz.events import Event
    from autogradviz.log.encoding import Encoder
    from autogradviz.log.log import Row

_CODEC: Final = pa.Codec("zstd", 1)


class SealedRows:
    """Rows of successive events."""

    def __init__(self, rows_by_kind: Mapping[type[Event], list[Row]]) -> None:
        """Seal rows.

        Raises:
            pyarrow.ArrowException: a value is of a type that neither marshalling takes nor a file.
        """
        self.counts = {kind: len(rows) for kind, rows in rows_by_kind.items() if rows}
        self._sealed = {kind: _seal(kind, rows_by_kind[kind]) for kind in self.counts}

    def rows(self, kinds: Collection[type[Event]]) -> Iterator[tuple[type[Event], list[Row]]]:
        """Yield the rows of each of some kinds that is here."""
        for kind in self.counts.keys() & set(kinds):
            yield kind, _unseal(*self._sealed[kind])

    def whole(self) -> Iterator[pa.RecordBatch]:
        """Yield all as columns."""
        with collector_waiting():
            batch = to_batch([(kind, _unseal(*sealed)) for kind, sealed in self._sealed.items()])
        yield batch

    def messages(self, encoder: Encoder) -> Iterator[bytes]:
        """Yield all as it stands in a file."""
        return map(encoder.encode, self.whole())


def _seal(kind: type[Event], rows: list[Row]) -> tuple[bytes, int]:
    """Return rows, and how many bytes they are uncompressed.

    Numbers are Python's own: PyTorch gave them, or we counted. Text may be somebody's, and of a
    type that is refused, or taken for bytes, as NumPy's is: such rows go through columns.
    """
    try:
        _require_plain(kind, rows)
        content = marshal.dumps(rows)
    except ValueError:
        content = marshal.dumps(_through_columns(kind, rows))
    return _CODEC.compress(content, asbytes=True), len(content)


def _unseal(content: bytes, nbytes: int) -> list[Row]:
    rows: list[Row] = marshal.loads(_CODEC.decompress(content, nbytes, asbytes=True))  # noqa: S302 - it never leaves this process
    return rows


def _require_plain(kind: type[Event], rows: list[Row]) -> None:
    """Check that all text is of Python's own type."""
    for place in _text_places()[kind]:
        values: Iterator[object] = map(itemgetter(place), rows)
        if not set(map(type, values)) <= {str, type(None)}:
            message = f"a {kind.__name__} with text of another type"
            raise ValueError(message)


@cache
def _text_places() -> dict[type[Event], list[int]]:
    """Return which fields of each kind are text."""
    texts = {column.name for column in schema() if column.type == pa.string()}
    return {
        kind: [place for place, name in enumerate(field_names(kind)) if name in texts]
        for kind in EVENT_TYPES
    }


def _through_columns(kind: type[Event], rows: list[Row]) -> list[Row]:
    """Return rows as a file would give them back."""
    return to_rows(to_batch([(kind, rows)]), Run(kind, 0, len(rows)))
