"""Locks that are free in a forked child.

A child has only the thread that forked: a lock that another thread held at the fork would never be
released there.
"""

from __future__ import annotations

import os
import threading
from typing import Any, Final
from weakref import WeakSet

_locks: Final[WeakSet[Any]] = WeakSet()


def new_lock() -> Any:
    """Return a reentrant lock that is free in a forked child.

    A thread that forks while it holds the lock still holds it in the child. Another thread may
    have been in the middle of a change: what the lock protects must be usable then, or not be used
    in a child.
    """
    lock = threading.RLock()
    _locks.add(lock)
    return lock


def _free_locks() -> None:
    for lock in _locks:
        if not lock._is_owned():  # noqa: SLF001 - so does threading.Condition
            lock._at_fork_reinit()  # noqa: SLF001 - so does logging


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_free_locks)
