"""Readings of single values, without running any of the user's code."""

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
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import torch

from autogradviz.event_log.compare_state_readings import ALIVE, DEAD, StateValue
from autogradviz.recorder.torch_internals.wrapper_tensors import (
    PLAIN_TENSORS,
    version_of,
)

if TYPE_CHECKING:
    from autogradviz.event_log.compare_state_readings import Reading

MAX_TEXT: Final = 60
MAX_ARRAY_NBYTES: Final = 1 << 20
"""Of a larger array only dtype and shape are read."""
MAX_ITEMS: Final = 12
"""Items of a container that are read one by one."""
MAX_HASHED: Final = 1024
"""Of a longer container only the length is read, and its first items."""

MAX_FORMS: Final = 4096
"""Texts of tensors that are remembered."""

TensorFacts: TypeAlias = tuple[tuple[int, ...], torch.dtype, torch.device, int | None, int, bool]
"""Shape, dtype, device, address, version and whether it requires a gradient."""

_FORMS: Final[dict[tuple[tuple[int, ...], torch.dtype, torch.device], str]] = {}

PLAIN: Final = frozenset({bool, int, float, complex, str, bytes, type(None)})
SEQUENCES: Final = (list, tuple, collections.deque)
BUILT_IN_CONTAINERS: Final = frozenset({list, tuple, set, frozenset, dict})
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
_WRAPPED: Final = {
    collections.UserDict: "data", collections.UserList: "data", collections.UserString: "data",
    weakref.WeakKeyDictionary: "data", weakref.WeakValueDictionary: "data",
    weakref.WeakSet: "data", queue.Queue: "queue", queue.LifoQueue: "queue",
    queue.PriorityQueue: "queue",
}  # fmt: skip
"""Classes of the standard library that wrap a container, and the attribute that holds it."""
WITH_PARTS: Final = frozenset(
    {*_WRAPPED, *_WRAPPERS, types.MethodType, contextvars.ContextVar, types.GeneratorType,
     logging.Logger, functools.partial, collections.ChainMap, weakref.ref,
     functools._lru_cache_wrapper}  # noqa: SLF001 - has no public name
)  # fmt: skip
"""Classes other than tensors for which ``parts_of`` returns objects."""

MAX_OBJECTS: Final = 20_000
"""Objects that are numbered in a long recording."""


class ObjectIds:
    """Small numbers for the addresses of objects."""

    def __init__(self) -> None:
        self._known: dict[int, int] = {}
        self._count = 0

    def of(self, address: int) -> int:
        """Return the number of an address."""
        number = self._known.get(address)
        if number is None:
            self._count += 1
            number = self._known[address] = self._count
        return number

    def prune(self) -> bool:
        """Remove the oldest addresses of a long recording; return whether there were any."""
        oldest = list(self._known)[:-MAX_OBJECTS]
        for address in oldest:
            del self._known[address]
        return bool(oldest)


def read_value(value: Any, ids: ObjectIds) -> Reading | None:
    """Return a reading of a value, None if reading it would run code of the user."""
    kind = type(value)
    found: Reading | None = None
    if kind in PLAIN:
        found = repr(value)[:MAX_TEXT]
    elif kind is types.FunctionType:
        place = f"(line {value.__code__.co_firstlineno})"
        found = f"function {value.__code__.co_name} {place}"[:MAX_TEXT]
    elif isinstance(value, torch.Tensor):
        found = tensor_reading(tensor_facts(value), ids) if kind in PLAIN_TENSORS else None
    elif isinstance(value, torch.nn.Module):
        found = StateValue("object", kind.__name__, object_id=ids.of(id(value)))
    elif isinstance(value, CONTAINERS):
        found = _container(value)
    elif kind in _COUNTERS:
        found = StateValue("iterator", repr(value)[:MAX_TEXT])
    elif kind in _ITERATORS:
        left = operator.length_hint(value)
        found = StateValue("iterator", f"{left} left", left)
    elif kind is types.GeneratorType:
        found = _generator(value)
    else:
        found = _library_value(value, kind) or _numpy_value(value, kind)
        if found is None:
            found = _one_value_text(value, kind)
    return found


def _one_value_text(value: Any, kind: type) -> str | None:
    """Return the text of a class, a built-in function, or a value that cannot change."""
    text: str | None = None
    if kind in _BY_REPR:
        text = repr(value)
    elif isinstance(value, enum.Enum):
        text = f"{kind.__name__}.{object.__getattribute__(value, '_name_')}"
    elif isinstance(value, type):
        text = f"class {value.__name__}"
    elif kind is types.BuiltinFunctionType:
        text = f"function {value.__name__}"
    return None if text is None else text[:MAX_TEXT]


def _library_value(value: Any, kind: type) -> StateValue | None:
    """Return a reading of a mutable value of a class of the standard library or of torch."""
    found: StateValue | None = None
    if kind is weakref.ref:
        found = StateValue("weak_reference", DEAD if value() is None else ALIVE)
    elif kind in _BYTES:
        content = digest(bytes(value[:MAX_ARRAY_NBYTES]))
        found = StateValue("container", f"len {len(value)}, content {content}", len(value))
    elif kind is queue.SimpleQueue:
        found = StateValue("container", f"len {value.qsize()}", value.qsize())
    elif kind is functools._lru_cache_wrapper:  # noqa: SLF001 - has no public name
        cached = value.cache_info().currsize
        found = StateValue("cache", f"{cached} cached", cached)
    elif kind is random.Random:
        found = _generator_state(repr(value.getstate()).encode())
    elif kind is torch.Generator:
        found = _generator_state(value.get_state().numpy().tobytes())
    return found


def _container(value: Any) -> StateValue:
    """Return a reading of a container: its length, and a hash or key that its first items lack."""
    length, kind = _length(value), cast("Any", dict)
    if isinstance(value, dict):
        if isinstance(value, collections.OrderedDict):
            kind = collections.OrderedDict
        first = next(iter(kind.keys(value)), None) if length > 1 else None
        if type(first) in PLAIN and first is not None:  # a cache that drops the oldest
            return StateValue("container", f"len {length}, {first!r:.20} first", length)
        return StateValue("container", f"len {length}", length)
    unordered = isinstance(value, (set, frozenset))
    if length and (unordered or MAX_ITEMS < length <= MAX_HASHED):
        kind = next(kind for kind in CONTAINERS if isinstance(value, kind))
        items = list(kind.__iter__(value)) if length <= MAX_HASHED else [value]
        if all(type(item) in PLAIN for item in items):
            content = hash(frozenset(items) if unordered else tuple(items)) & 0xFFFFFF
            return StateValue("container", f"len {length}, content {content:06x}", length)
    return StateValue("container", f"len {length}", length)


def key_text(key: Any, ids: ObjectIds) -> str | None:
    """Return the text of a dictionary key: a tuple of plain values, a module, an enum member."""
    if type(key) is tuple:
        return repr(key)[:MAX_TEXT] if all(type(part) in PLAIN for part in key) else None
    if isinstance(key, (enum.Enum, torch.nn.Module)):
        reading = read_value(key, ids)
        return reading.text if isinstance(reading, StateValue) else reading
    return None


def parts_of(value: Any) -> list[tuple[str, Any]]:
    """Return the objects that an iterator, a wrapper or a context variable refers to, by name.

    The name is "" for an object that stands for the value itself.
    """
    kind = type(value)
    parts = _wrapped_parts(value, kind)
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


def _wrapped_parts(value: Any, kind: type) -> list[tuple[str, Any]]:
    """Return a tensor's attributes, or the object that a class of the standard library wraps."""
    if kind in PLAIN_TENSORS:  # weight.scale = ..., but not what Dynamo notes there
        return [item for item in value.__dict__.items() if not item[0].startswith("_dynamo_")]
    if kind in _WRAPPED:
        return [("", vars(value)[_WRAPPED[kind]])]
    if kind is collections.ChainMap:  # the first that has a key counts
        return [("", part) for part in value.maps[:MAX_ITEMS]]
    return [("", value())] if kind is weakref.ref else []


def _length(value: Any) -> int:
    """Return a container's length without calling a user's ``__len__``."""
    if type(value) in BUILT_IN_CONTAINERS:
        return len(value)
    bases: tuple[Any, ...] = CONTAINERS
    return int(next(base.__len__(value) for base in bases if isinstance(value, base)))


def tensor_facts(tensor: torch.Tensor) -> TensorFacts:
    """Return the facts in a reading of a tensor, which is of one of PyTorch's own classes."""
    try:
        address = tensor.data_ptr()
    except RuntimeError:  # no memory of its own
        address = None
    return (
        tensor.shape, tensor.dtype, tensor.device, address, version_of(tensor),
        tensor.requires_grad,
    )  # fmt: skip


def tensor_reading(facts: TensorFacts, ids: ObjectIds) -> StateValue:
    """Return the reading of a tensor."""
    shape, dtype, device, address, version, requires_grad = facts
    key = (shape, dtype, device)
    try:
        form = _FORMS.get(key)
        if form is None:
            form = _FORMS[key] = _tensor_form(*key)
    except TypeError:  # symbolic sizes have no hash
        form = _tensor_form(*key)
    memory = None if address is None else ids.of(address)
    return StateValue("tensor", form, None, memory, version, requires_grad)


def _tensor_form(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> str:
    """Return dtype, shape and device as text: "float32 2×4"."""
    if len(_FORMS) > MAX_FORMS:
        _FORMS.clear()
    size = "×".join(map(str, shape)) or "scalar"
    place = "" if device.type == "cpu" else f" {device}"
    return f"{str(dtype).removeprefix('torch.')} {size}{place}"


def _generator(value: types.GeneratorType[Any, Any, Any]) -> StateValue:
    frame = value.gi_frame
    text = "finished" if frame is None else f"at line {frame.f_lineno}, step {frame.f_lasti}"
    return StateValue("iterator", text)


def _numpy_value(value: Any, kind: type) -> Reading | None:
    numpy: Any = sys.modules.get("numpy")
    found: Reading | None = None
    if numpy is None:
        return None
    if isinstance(value, (numpy.number, numpy.bool_)):
        found = repr(value.item())[:MAX_TEXT]
    elif kind is numpy.random.Generator:
        found = _generator_state(repr(value.bit_generator.state).encode())
    elif kind is numpy.random.RandomState:
        found = _generator_state(repr(value.get_state(legacy=False)["state"]).encode())
    elif kind is numpy.ndarray and value.dtype != object:
        form = f"{value.dtype} {'×'.join(map(str, value.shape)) or 'scalar'}"
        found = (
            StateValue("array", f"{form} {digest(value.tobytes())}")
            if value.nbytes <= MAX_ARRAY_NBYTES
            else form
        )
    return found


def _generator_state(content: bytes) -> StateValue:
    return StateValue("rng", f"state {digest(content)}")


def digest(content: bytes) -> str:
    """Return eight hexadecimal digits of a hash."""
    return hashlib.blake2b(content, digest_size=4).hexdigest()
