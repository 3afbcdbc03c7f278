"""The process: locks after a fork, garbage collection, standard error."""

from __future__ import annotations

import gc
import os
import sys
import threading
import weakref
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator


# --- locks that are free in a forked child --------------------------------------------------------
#
# A child has only the thread that forked: a lock that another thread held at the fork would never
# be released there.


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


# --- pause gc -------------------------------------------------------------------------------------
#
# Pause the garbage collector while many long-lived objects are built, which it would traverse.


_YOUNG: Final = 1


@contextmanager
def collector_paused() -> Iterator[None]:
    """Disable the garbage collector in a block, and restore its state afterwards.

    Young garbage is collected first. Objects built in the block count as old, so that later
    collections of the young generations do not traverse them.
    """
    if not gc.isenabled():
        yield
        return
    gc.collect(_YOUNG)
    with collector_waiting():
        try:
            yield
        finally:
            if not _has_frozen_objects():  # they would be thawed
                gc.freeze()
                gc.unfreeze()


def _has_frozen_objects() -> bool:
    """Return whether the program has ever frozen objects; counting many takes long."""
    global _was_frozen  # noqa: PLW0603 - the collector is global too
    _was_frozen = _was_frozen or gc.get_freeze_count() > 0
    return _was_frozen


_was_frozen = False


@contextmanager
def collector_waiting() -> Iterator[None]:
    """Disable the garbage collector in a short block; generations of objects do not change."""
    was_enabled = gc.isenabled()
    try:
        gc.disable()
        yield
    finally:
        if was_enabled:
            gc.enable()


# --- messages on standard error -------------------------------------------------------------------


def write_stderr(text: str) -> None:
    """Write to standard error, unless the recorded program has closed it."""
    if is_open():
        with suppress(OSError):
            sys.stderr.write(text)
            sys.stderr.flush()


def print_line(message: str) -> None:
    """Print one line on standard error, unless the recorded program has closed it."""
    write_stderr(f"autogradviz: {message}\n")


def is_open() -> bool:
    """Return whether anything can be written to standard error."""
    return sys.stderr is not None and not sys.stderr.closed
