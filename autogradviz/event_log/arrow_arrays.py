"""Arrow arrays of Python values."""

from __future__ import annotations

import struct
import sys
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Sequence


# The first call of ``pyarrow.array`` or ``pyarrow.scalar`` imports pandas where it is installed,
# which takes at least a quarter of a second, in the middle of a training step. Until pandas is
# imported by other code, arrays are built from buffers, which takes a third longer per event.


_NUMBERS: Final = {pa.int64(): ("q", 0), pa.float64(): ("d", 0.0)}
"""For each type its ``struct`` code, and the filler under a null."""


def make_array(values: Sequence[Any], type_: pa.DataType) -> pa.Array:
    r"""Return values as an array; None becomes a null.

    Lone surrogates in text, which UTF-8 cannot encode, are written as escapes: ``\udc80``. Python
    creates them from file names and source lines that are not UTF-8.

    Args:
        values: int64, float64, bool or string values, or tuples of one of these.
        type_: the type of the array.
    """
    if "pandas" in sys.modules:
        try:
            return pa.array(values, type_)
        except UnicodeEncodeError:
            pass
    return build_from_buffers(values, type_)


def import_pandas() -> None:
    """Import pandas if it is installed: many arrays follow, and no training step waits."""
    pa.array([], pa.int64())


def build_from_buffers(values: Sequence[Any], type_: pa.DataType) -> pa.Array:
    """Return the array of ``make_array``, built from buffers."""
    if type_ == pa.string():
        return _texts(values)
    if type_ == pa.bool_():
        return _array(type_, values, [_validity(values), _bits(values)])
    if type_ in _NUMBERS:
        return _numbers(values, type_)
    filled = [() if value is None else value for value in values]
    inner = make_array(list(chain.from_iterable(filled)), type_.value_type)
    return _array(type_, values, [_validity(values), _offsets(filled)], [inner])


def _numbers(values: Sequence[Any], type_: pa.DataType) -> pa.Array:
    code, filler = _NUMBERS[type_]
    try:
        return _array(type_, values, [None, _packed(code, values)])
    except struct.error:  # there are nulls
        filled = [filler if value is None else value for value in values]
    return _array(type_, values, [_validity(values), _packed(code, filled)])


def _texts(values: Sequence[str | None]) -> pa.Array:
    """Return an array of text; repeated text is encoded once."""
    places = dict.fromkeys(values)
    places.update(zip(places, range(len(places)), strict=True))
    encoded = [(text or "").encode("utf-8", "backslashreplace") for text in places]
    distinct = list(places)
    buffers = [_validity(distinct), _offsets(encoded), pa.py_buffer(b"".join(encoded))]
    distinct_array = _array(pa.string(), distinct, buffers)
    return distinct_array.take(_numbers([places[text] for text in values], pa.int64()))


def _array(
    type_: pa.DataType,
    values: Sequence[Any],
    buffers: list[pa.Buffer | None],
    children: list[pa.Array] | None = None,
) -> pa.Array:
    """Return an array of buffers, the first of which marks the values that are not null."""
    return pa.Array.from_buffers(type_, len(values), buffers, children=children)


def _validity(values: Sequence[Any]) -> pa.Buffer | None:
    """Return the validity bitmap, None without nulls."""
    return _bits([value is not None for value in values]) if None in values else None


def _bits(values: Sequence[bool | None]) -> pa.Buffer:
    ones = pa.py_buffer(bytes(map(bool, values)))
    return (
        pa.Array.from_buffers(pa.uint8(), len(values), [None, ones]).cast(pa.bool_()).buffers()[1]
    )


def _offsets(values: Sequence[Any]) -> pa.Buffer:
    return _packed("i", list(accumulate(map(len, values), initial=0)))


def _packed(code: str, values: Sequence[float]) -> pa.Buffer:
    """Return numbers as a buffer; Python's ``array`` takes twice as long."""
    return pa.py_buffer(struct.pack(f"{len(values)}{code}", *values))
