"""Pause the garbage collector while many long-lived objects are built, which it would traverse."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

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
