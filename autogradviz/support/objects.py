"""Constructors, identity tables and lists of live objects."""

from __future__ import annotations

import gc
import weakref
from dataclasses import MISSING, fields
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


# --- constructors of frozen dataclasses that take a tenth of the usual time -----------------------
#
# The analysis of 20,000 nodes creates half a million instances. The constructor of a frozen
# dataclass sets each field through ``object.__setattr__`` and packs its keywords into a dict. A
# maker fills an instance of a class with the same slots that is not frozen, then changes its class.


P = ParamSpec("P")
T = TypeVar("T")


def maker(kind: Callable[P, T]) -> Callable[P, T]:
    """Return a fast constructor of a slotted dataclass; fields may also be positional.

    Raises:
        TypeError: if the class has a default factory, ``__post_init__`` or no slots.
    """
    return cast("Callable[P, T]", _maker(kind))


@cache
def _maker(kind: Any) -> Callable[..., Any]:
    fields_ = fields(kind)
    has_factory = any(field.default_factory is not MISSING for field in fields_)
    if has_factory or hasattr(kind, "__post_init__") or "__slots__" not in vars(kind):
        message = f"{kind.__name__} has a default factory, __post_init__ or no slots"
        raise TypeError(message)
    namespace = {
        "__slots__": kind.__slots__,
        "__setattr__": object.__setattr__,
        "__delattr__": object.__delattr__,
    }
    scope = {
        "_unfrozen": type(kind.__name__, kind.__bases__, namespace),
        "_kind": kind,
        "_new": object.__new__,
        "_defaults": {field.name: field.default for field in fields_},
    }
    arguments = ", ".join(
        field.name if field.default is MISSING else f"{field.name}=_defaults[{field.name!r}]"
        for field in fields_
    )
    assignments = "\n".join(f"    self.{field.name} = {field.name}" for field in fields_)
    text = f"def make({arguments}):\n    self = _new(_unfrozen)\n{assignments}\n"
    text += "    self.__class__ = _kind\n    return self\n"
    exec(text, scope)  # noqa: S102 - like dataclasses; it contains only field names
    return cast("Callable[..., Any]", scope["make"])


# --- values of objects, without keeping the objects alive -----------------------------------------


_Value = TypeVar("_Value")


class IdentityTable(Generic[_Value]):
    """Maps objects to values by identity; an entry goes with its object.

    ``weakref.WeakKeyDictionary`` removes entries in Python, where the exception of a signal handler
    would be lost: see NOTE [ Signals of callbacks ]. Here only C runs when an object dies.
    """

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: dict[int, tuple[weakref.ref[Any], _Value]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __setitem__(self, owner: Any, value: _Value) -> None:
        key, entries = id(owner), self._entries
        # Called with the reference, which is then what ``pop`` returns if the key is missing.
        entries[key] = (weakref.ref(owner, partial(entries.pop, key)), value)

    def get(self, owner: Any) -> _Value | None:
        """Return the value of an object, None if it has none."""
        found = self._entries.get(id(owner))
        return None if found is None or found[0]() is not owner else found[1]


# --- find the live objects of some types without an effect on other threads -----------------------


def live_objects(types: Iterable[type]) -> list[Any]:
    """Return the objects that are of a Python class given, without its subclasses.

    NOTE [ Referrers of the class ]
    An object of a Python class refers to the class. ``gc.get_objects`` would return unfinished
    tuples of other threads, too, whose ``tuple(...)`` raises a ``SystemError`` if such a thread
    runs while the list exists: CPython resizes only a tuple that has one reference.
    """
    kinds = {id(each): each for each in types}  # not hashed: a metaclass may define it
    return [each for each in gc.get_referrers(*kinds.values()) if id(type(each)) in kinds]
