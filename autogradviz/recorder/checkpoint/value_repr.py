"""The state of one value as short text, without running any of the user's code."""

from __future__ import annotations

import array
import collections
import contextvars
import datetime as dt
import decimal
import enum
import fractions
import functools
import hashlib
import itertools
import logging
import operator
import queue
import random
import sys
import types
import weakref
from typing import Any, Final, cast

import torch

from autogradviz.recorder.ids.tensors import PLAIN_TENSORS, version_of

MAX_TEXT: Final = 60
MAX_ARRAY_NBYTES: Final = 1 << 20
"""Arrays larger than this are told by their shape alone."""
MAX_ITEMS: Final = 12
"""Items of a container that are looked at one by one."""
MAX_HASHED: Final = 1024
"""Longer containers are told by their length alone, besides their first items."""

PLAIN: Final = (bool, int, float, complex, str, bytes, type(None))
SEQUENCES: Final = (list, tuple, collections.deque)
CONTAINERS: Final = (*SEQUENCES, set, frozenset, dict)
_COUNTERS: Final = (itertools.count, itertools.repeat)
_EMPTY: Final[tuple[Any, ...]] = (
    iter([]), iter(()), iter(range(0)), iter(range(1 << 70)), iter({}), iter(set()), iter(""),
    reversed([]), iter({}.values()), iter({}.items()),
)  # fmt: skip
_ITERATORS: Final = tuple(map(type, _EMPTY))
_WRAPPERS: Final = (zip, enumerate, map, filter)
_BY_REPR: Final = frozenset(
    {torch.dtype, torch.device, torch.layout, torch.memory_format, range, decimal.Decimal,
     fractions.Fraction, dt.datetime, dt.date, dt.time, dt.timedelta}
)  # fmt: skip
_BYTES: Final = (bytearray, array.array)
_AROUND: Final = {
    collections.UserDict: "data", collections.UserList: "data", collections.UserString: "data",
    weakref.WeakKeyDictionary: "data", weakref.WeakValueDictionary: "data",
    weakref.WeakSet: "data", queue.Queue: "queue", queue.LifoQueue: "queue",
    queue.PriorityQueue: "queue",
}  # fmt: skip
"""The standard library's classes around one container, and the attribute that holds it."""


MAX_OBJECTS: Final = 20_000
"""Objects that are told apart in a long recording."""


class Numbers:
    """Small numbers that tell objects apart, as long as they live."""

    def __init__(self) -> None:
        self._known: dict[int, int] = {}
        self._count = 0

    def of(self, address: int) -> str:
        """Return "#3" for an address."""
        number = self._known.get(address)
        if number is None:
            self._count += 1
            number = self._known[address] = self._count
        return f"#{number}"

    def forget(self) -> None:
        """Let go of the oldest, where a long recording has met very many."""
        for address in list(self._known)[:-MAX_OBJECTS]:
            del self._known[address]


def value_repr(value: Any, numbers: Numbers) -> str | None:
    """Return a value's state, None where it has none that can be read without running code."""
    kind = type(value)
    text: str | None = None
    if kind in PLAIN:
        text = repr(value)[:MAX_TEXT]
    elif isinstance(value, torch.Tensor):
        text = _tensor(value, numbers)
    elif isinstance(value, torch.nn.Module):
        text = f"{kind.__name__} {numbers.of(id(value))}"
    elif isinstance(value, CONTAINERS):
        text = _container(value)
    elif kind in _COUNTERS:
        text = repr(value)[:MAX_TEXT]
    elif kind in _ITERATORS:
        text = f"{operator.length_hint(value)} left"
    elif kind is types.GeneratorType:
        text = _generator(value)
    elif kind is functools._lru_cache_wrapper:  # noqa: SLF001 - has no public name
        text = f"{value.cache_info().currsize} cached"
    else:
        text = _small(value, kind) or _function_random_or_array(value, kind)
    return text


def _small(value: Any, kind: type) -> str | None:
    """Return the text of what is one value, though not of a built-in type."""
    numpy: Any = sys.modules.get("numpy")
    text: str | None = None
    if kind in _BY_REPR:
        text = repr(value)
    elif isinstance(value, enum.Enum):
        text = f"{kind.__name__}.{object.__getattribute__(value, '_name_')}"
    elif isinstance(value, type):
        text = f"class {value.__name__}"
    elif kind is weakref.ref:
        text = "dead" if value() is None else "alive"
    elif kind in _BYTES:
        text = f"len {len(value)}, content {digest(bytes(value[:MAX_ARRAY_NBYTES]))}"
    elif kind is queue.SimpleQueue:
        text = f"len {value.qsize()}"
    elif numpy is not None and isinstance(value, (numpy.number, numpy.bool_)):
        text = repr(value.item())
    return None if text is None else text[:MAX_TEXT]


def _container(value: Any) -> str:
    """Return "len 3", and what the first items, which are looked at themselves, do not show."""
    length, kind = _length(value), cast("Any", dict)
    if isinstance(value, dict):
        if isinstance(value, collections.OrderedDict):
            kind = collections.OrderedDict
        first = next(iter(kind.keys(value)), None) if length > 1 else None
        if type(first) in PLAIN and first is not None:
            return f"len {length}, {first!r:.20} first"  # a cache that drops the oldest
        return f"len {length}"
    unordered = isinstance(value, (set, frozenset))
    if length and (unordered or MAX_ITEMS < length <= MAX_HASHED):
        kind = next(kind for kind in CONTAINERS if isinstance(value, kind))
        items = list(kind.__iter__(value)) if length <= MAX_HASHED else [value]
        if all(type(item) in PLAIN for item in items):
            content = hash(frozenset(items) if unordered else tuple(items))
            return f"len {length}, content {content & 0xFFFFFF:06x}"
    return f"len {length}"


def key_text(key: Any, numbers: Numbers) -> str | None:
    """Return how a key of a dictionary is named: tuples of plain values, modules, members."""
    if type(key) is tuple:
        return repr(key)[:MAX_TEXT] if all(type(part) in PLAIN for part in key) else None
    if isinstance(key, (enum.Enum, torch.nn.Module)):
        return value_repr(key, numbers)
    return None


def parts_of(value: Any) -> list[tuple[str, Any]]:
    """Return what an iterator, a wrapper or a context variable leads to, by name.

    The name is "" for what stands in the value's own place.
    """
    kind = type(value)
    parts = _around(value, kind)
    if kind is types.MethodType:
        parts = [("", value.__func__), ("__self__", value.__self__)]
    elif kind is contextvars.ContextVar:
        parts = [("", value.get(None))]
    elif kind is types.GeneratorType and value.gi_frame is not None:
        parts = list(value.gi_frame.f_locals.items())
    elif kind in _WRAPPERS and hasattr(value, "__reduce__"):
        parts = [(f"[{n}]", part) for n, part in enumerate(value.__reduce__()[1])]
    elif kind is logging.Logger:
        parts = [("level", logging.Logger.getEffectiveLevel(value))]
    elif kind is functools.partial:
        parts = [("func", value.func), ("args", value.args), ("keywords", value.keywords)]
    elif kind is functools._lru_cache_wrapper:  # noqa: SLF001 - has no public name
        parts = [("__wrapped__", value.__wrapped__)]
    return parts


def _around(value: Any, kind: type) -> list[tuple[str, Any]]:
    """Return a tensor's attributes, or what one of the standard library's classes stands around."""
    if kind in PLAIN_TENSORS:  # weight.scale = ...
        return list(value.__dict__.items())
    if kind in _AROUND:
        return [("", vars(value)[_AROUND[kind]])]
    if kind is collections.ChainMap:  # the first that has a key counts
        return [("", part) for part in value.maps[:MAX_ITEMS]]
    return [("", value())] if kind is weakref.ref else []


def _length(value: Any) -> int:
    """Return a container's length, past a user's own ``__len__``."""
    bases: tuple[Any, ...] = CONTAINERS
    return int(next(base.__len__(value) for base in bases if isinstance(value, base)))


def _tensor(value: torch.Tensor, numbers: Numbers) -> str | None:
    if type(value) not in PLAIN_TENSORS:
        return None
    shape = "×".join(map(str, value.shape)) or "scalar"
    grad = ", requires grad" if value.requires_grad else ""
    place = "" if value.device.type == "cpu" else f" {value.device}"
    dtype = str(value.dtype).removeprefix("torch.")
    try:
        memory = numbers.of(value.data_ptr())
    except RuntimeError:  # no memory of its own
        memory = ""
    return f"{dtype} {shape}{place} {memory} v{version_of(value)}{grad}"


def _generator(value: types.GeneratorType[Any, Any, Any]) -> str:
    frame = value.gi_frame
    return "finished" if frame is None else f"at line {frame.f_lineno}, step {frame.f_lasti}"


def _function_random_or_array(value: Any, kind: type) -> str | None:
    numpy: Any = sys.modules.get("numpy")
    state: bytes | None = None
    if kind is types.FunctionType:
        return f"function {value.__code__.co_name} (line {value.__code__.co_firstlineno})"
    if kind is types.BuiltinFunctionType:
        return f"function {value.__name__}"
    if kind is random.Random:
        state = repr(value.getstate()).encode()
    elif kind is torch.Generator:
        state = value.get_state().numpy().tobytes()
    elif numpy is not None and kind is numpy.random.Generator:
        state = repr(value.bit_generator.state).encode()
    elif numpy is not None and kind is numpy.random.RandomState:
        state = repr(value.get_state(legacy=False)["state"]).encode()
    elif numpy is not None and kind is numpy.ndarray and value.dtype != object:
        shape = "×".join(map(str, value.shape)) or "scalar"
        content = digest(value.tobytes()) if value.nbytes <= MAX_ARRAY_NBYTES else ""
        return f"{value.dtype} {shape} {content}"
    return None if state is None else f"state {digest(state)}"


def digest(content: bytes) -> str:
    """Return eight letters that tell contents apart."""
    return hashlib.blake2b(content, digest_size=4).hexdigest()
