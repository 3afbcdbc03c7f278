"""Lists of live objects, without an effect on other threads."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable


def live_objects(types: Iterable[type]) -> list[Any]:
    """Return the objects that are of a Python class given, without its subclasses.

    NOTE [ Referrers of the class ]
    An object of a Python class refers to the class. ``gc.get_objects`` would return unfinished
    tuples of other threads, too, whose ``tuple(...)`` raises a ``SystemError`` if such a thread
    runs while the list exists: CPython resizes only a tuple that has one reference.
    """
    kinds = {id(each): each for each in types}  # not hashed: a metaclass may define it
    return [each for each in gc.get_referrers(*kinds.values()) if id(type(each)) in kinds]
