"""Values as Arrow arrays, without waiting for pandas in somebody's training step.

``pyarrow.array`` and ``pyarrow.scalar`` import pandas when first called, wherever it is installed:
a quarter of a second in the middle of a recording. Until somebody else has done so, arrays are put
together from buffers, which takes a third longer for an event.
"""

from __future__ import annotations

import struct
import sys
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Sequence

_NUMBERS: Final = {pa.int64(): ("q", 0), pa.float64(): ("d", 0.0)}
"""For each type how ``struct`` calls it, and what stands where there is none."""


def make_array(values: Sequence[Any], type_: pa.DataType) -> pa.Array:
    r"""Return values as an array; None becomes a null.

    Lone surrogates in text, which UTF-8 cannot hold, are spelled out: ``\udc80``. Python makes them
    of file names and source lines that are not UTF-8.

    Args:
        values: whole numbers of 64 bits, numbers, booleans, text, or tuples of one of those.
        type_: which of them.
    """
    if "pandas" in sys.modules:
        try:
            return pa.array(values, type_)
        except UnicodeEncodeError:
            pass
    return put_together(values, type_)


def take_time() -> None:
    """Let pandas be imported now: many arrays are to be made, and no step waits for them."""
    pa.array([], pa.int64())


def put_together(values: Sequence[Any], type_: pa.DataType) -> pa.Array:
    """Return what ``make_array`` does, from buffers."""
    if type_ == pa.string():
        return _texts(values)
    if type_ == pa.bool_():
        return _array(type_, values, [_known(values), _bits(values)])
    if type_ in _NUMBERS:
        return _numbers(values, type_)
    filled = [() if value is None else value for value in values]
    inner = make_array(list(chain.from_iterable(filled)), type_.value_type)
    return _array(type_, values, [_known(values), _offsets(filled)], [inner])


def _numbers(values: Sequence[Any], type_: pa.DataType) -> pa.Array:
    code, zero = _NUMBERS[type_]
    try:
        return _array(type_, values, [None, _packed(code, values)])
    except struct.error:  # there are nulls
        filled = [zero if value is None else value for value in values]
    return _array(type_, values, [_known(values), _packed(code, filled)])


def _texts(values: Sequence[str | None]) -> pa.Array:
    """Return text; each that comes again and again is encoded once."""
    places = dict.fromkeys(values)
    places.update(zip(places, range(len(places)), strict=True))
    encoded = [(text or "").encode("utf-8", "backslashreplace") for text in places]
    each = list(places)
    buffers = [_known(each), _offsets(encoded), pa.py_buffer(b"".join(encoded))]
    array_of_each = _array(pa.string(), each, buffers)
    return array_of_each.take(_numbers([places[text] for text in values], pa.int64()))


def _array(
    type_: pa.DataType,
    values: Sequence[Any],
    buffers: list[pa.Buffer | None],
    children: list[pa.Array] | None = None,
) -> pa.Array:
    """Return an array of buffers, the first of which tells where there are no nulls."""
    return pa.Array.from_buffers(type_, len(values), buffers, children=children)


def _known(values: Sequence[Any]) -> pa.Buffer | None:
    """Return where a value is not None; None stands for everywhere."""
    return _bits([value is not None for value in values]) if None in values else None


def _bits(values: Sequence[bool | None]) -> pa.Buffer:
    ones = pa.py_buffer(bytes(map(bool, values)))
    return (
        pa.Array.from_buffers(pa.uint8(), len(values), [None, ones]).cast(pa.bool_()).buffers()[1]
    )


def _offsets(values: Sequence[Any]) -> pa.Buffer:
    return _packed("i", list(accumulate(map(len, values), initial=0)))


def _packed(code: str, values: Sequence[float]) -> pa.Buffer:
    """Return numbers as they lie in memory; Python's ``array`` takes twice as long."""
    return pa.py_buffer(struct.pack(f"{len(values)}{code}", *values))
