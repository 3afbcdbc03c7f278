"""Locks that are free in a forked child.

A child has only the thread that forked: a lock that another thread held at the fork would never be
released there.
"""

from __future__ import annotations

import os
import threading
import weakref
from functools import partial
from typing import Any, Final

_locks: Final[dict[int, weakref.ref[Any]]] = {}


def new_lock() -> Any:
    """Return a reentrant lock that is free in a forked child.

    A thread that forks while it holds the lock still holds it in the child. Another thread may
    have been in the middle of a change: what the lock protects must be usable then, or not be used
    in a child.
    """
    lock = threading.RLock()
    _locks[id(lock)] = weakref.ref(lock, partial(_locks.pop, id(lock)))  # runs only C
    return lock


def _free_locks() -> None:
    for reference in list(_locks.values()):
        lock = reference()
        if lock is not None and not lock._is_owned():  # noqa: SLF001 - so does threading.Condition
            lock._at_fork_reinit()  # noqa: SLF001 - so does logging


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_free_locks)
