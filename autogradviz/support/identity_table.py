"""Values of objects, without keeping the objects alive."""

from __future__ import annotations

import weakref
from functools import partial
from typing import Any, Generic, TypeVar

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
