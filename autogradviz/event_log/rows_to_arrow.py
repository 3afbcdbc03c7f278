"""Conversion of rows of events to Arrow columns, and back.

All kinds share one wide table: one column per field name, with the type of the annotations in
``events/``, and null for kinds without that field. In each batch the rows of one kind are
contiguous, in the order of ``EVENT_TYPES``.
"""

from __future__ import annotations

import types
from functools import cache
from itertools import pairwise
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Literal,
    NamedTuple,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import pyarrow as pa
import pyarrow.compute as pc

from autogradviz.event_log.arrow_arrays import make_array
from autogradviz.events import EVENT_TYPES, Event, field_names
from autogradviz.support.locks_gc_and_stderr import collector_waiting

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from autogradviz.event_log.uncompressed_rows import Columns, Row

KINDS: Final = {kind.__name__: kind for kind in EVENT_TYPES}


def _is_optional(hint: Any) -> bool:
    return get_origin(hint) in (Union, types.UnionType)


_REQUIRED: Final = {
    kind: {name for name, hint in get_type_hints(kind).items() if not _is_optional(hint)}
    for kind in EVENT_TYPES
}


class DamagedError(ValueError):
    """A batch has content that no recording writes."""


def _arrow_type(hint: Any) -> pa.DataType:
    """Return the column type for the annotation of a field."""
    if _is_optional(hint):
        (hint,) = (part for part in get_args(hint) if part is not type(None))
    origin = get_origin(hint)
    if origin is tuple:
        return pa.list_(_arrow_type(get_args(hint)[0]))
    if origin is Literal:
        return pa.string()
    return {int: pa.int64(), float: pa.float64(), str: pa.string(), bool: pa.bool_()}[hint]


@cache
def schema() -> pa.Schema:
    """Return the columns: the kind, then each field name of all events once."""
    columns: dict[str, pa.DataType] = {"kind": pa.string()}
    for kind in EVENT_TYPES:
        hints = get_type_hints(kind)
        for name in field_names(kind):
            columns.setdefault(name, _arrow_type(hints[name]))
    return pa.schema(columns)


# --- rows to columns ------------------------------------------------------------------------


def to_batch(pieces: Iterable[tuple[type[Event], Columns]]) -> pa.RecordBatch:
    """Return one batch with the rows of some kinds, one kind after the other."""
    with collector_waiting():
        filled = [(len(each[0]), _arrays(kind, each)) for kind, each in pieces if each[0]]
        return pa.record_batch(
            [_complete_column(column, filled) for column in schema()], schema=schema()
        )


def _complete_column(
    column: pa.Field, filled: Sequence[tuple[int, dict[str, pa.Array]]]
) -> pa.Array:
    """Return one column of all kinds, with nulls for kinds without that field."""
    parts: list[pa.Array] = []
    missing = 0
    for length, columns in filled:
        if column.name not in columns:
            missing += length
            continue
        if missing:
            parts.append(pa.nulls(missing, column.type))
            missing = 0
        parts.append(columns[column.name])
    if missing or not parts:
        parts.append(pa.nulls(missing, column.type))
    return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)


def complete(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch with all columns of the schema, null where it lacks one."""
    known = set(batch.schema.names)
    return pa.record_batch(
        [
            batch.column(column.name) if column.name in known else pa.nulls(len(batch), column.type)
            for column in schema()
        ],
        schema=schema(),
    )


def _arrays(kind: type[Event], columns: Columns) -> dict[str, pa.Array]:
    arrays = {"kind": make_array((kind.__name__,) * len(columns[0]), pa.string())}
    for name, values in zip(field_names(kind), columns, strict=True):
        arrays[name] = make_array(values, schema().field(name).type)
    return arrays


# --- columns to rows ------------------------------------------------------------------------


class Run(NamedTuple):
    """Contiguous rows of one kind in a batch."""

    kind: type[Event]
    start: int
    length: int


def find_runs(batch: pa.RecordBatch, kinds: Collection[type[Event]] | None = None) -> Iterator[Run]:
    """Check a batch, and yield the runs of its kinds of events.

    Args:
        batch: events as columns.
        kinds: those whose columns were read; other kinds are not checked. None for all.

    Raises:
        DamagedError: if the batch has an unknown kind, or lacks a value that every event of its
            kind has.
        pyarrow.ArrowInvalid: if its buffers contradict each other.
    """
    batch.validate(full=True)
    encoded = pc.run_end_encode(batch.column("kind"))
    start = 0
    for name, end in zip(encoded.values.to_pylist(), encoded.run_ends.to_pylist(), strict=True):
        kind = KINDS.get(name or "")
        if kind is None and kinds is None:
            message = f"unknown kind of event {name or ''!r}"
            raise DamagedError(message)
        if kind is not None and (kinds is None or kind in kinds):
            run = Run(kind, start, end - start)
            _require_values(batch, run)
            yield run
        start = end


def _require_values(batch: pa.RecordBatch, run: Run) -> None:
    for name in field_names(run.kind):
        if name in _REQUIRED[run.kind]:
            index = batch.schema.get_field_index(name)
            if index < 0 or batch.column(index).slice(run.start, run.length).null_count:
                message = f"a {run.kind.__name__} without {name}"
                raise DamagedError(message)


def to_rows(batch: pa.RecordBatch, run: Run) -> list[Row]:
    """Return the rows of one run, with None for fields without a column."""
    return list(zip(*to_columns(batch, run), strict=True))


def to_columns(batch: pa.RecordBatch, run: Run) -> Columns:
    """Return the values of each field of one run, with None for fields without a column."""
    known = set(batch.schema.names)
    return [
        _from_array(batch.column(name).slice(run.start, run.length))
        if name in known
        else [None] * run.length
        for name in field_names(run.kind)
    ]


def _from_array(array: pa.Array) -> list[Any]:
    """Return the values of an array, several times faster than ``Array.to_pylist``."""
    if array.null_count == len(array):
        return [None] * len(array)
    values = _READERS[array.type.id](array)
    if array.null_count:
        for index in _integers(pc.indices_nonzero(array.is_null()).cast(pa.int64())):
            values[index] = None
    return values


def _integers(array: pa.Array) -> list[Any]:
    numbers = memoryview(array.buffers()[1]).cast("q")
    return numbers[array.offset : array.offset + len(array)].tolist()


def _floats(array: pa.Array) -> list[Any]:
    numbers = memoryview(array.buffers()[1]).cast("d")
    return numbers[array.offset : array.offset + len(array)].tolist()


def _booleans(array: pa.Array) -> list[Any]:
    return list(map(bool, _integers(array.cast(pa.int64()))))


def _strings(array: pa.Array) -> list[Any]:
    """Return the values of an array of text; equal strings are one object."""
    encoded = array.dictionary_encode(null_encoding="encode")
    texts = encoded.dictionary.to_pylist()
    return [texts[i] for i in _integers(encoded.indices.cast(pa.int64()))]


def _lists(array: pa.Array) -> list[Any]:
    """Return the values of an array of lists as tuples; a null becomes an empty one."""
    flat = array.flatten()
    if not len(flat):
        return [()] * len(array)
    starts = _integers(array.offsets.cast(pa.int64()))
    if array.null_count and starts[-1] - starts[0] != len(flat):  # a null has values
        starts = _integers(array.fill_null([]).offsets.cast(pa.int64()))
    offsets = [start - starts[0] for start in starts]
    values = tuple(_from_array(flat))
    return [values[i:j] for i, j in pairwise(offsets)]


_READERS = {
    pa.int64().id: _integers,
    pa.float64().id: _floats,
    pa.bool_().id: _booleans,
    pa.string().id: _strings,
    pa.list_(pa.int64()).id: _lists,
}
