"""The garbage collector, paused while much is built that stays: it would walk all that again."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_YOUNG: Final = 1


@contextmanager
def collector_paused() -> Iterator[None]:
    """Keep the garbage collector from running; it goes on as it was, whatever happens inside.

    What was garbage before is collected first, as far as it is young. What was built meanwhile
    counts as old, so that the next collections need not walk it three times.
    """
    if not gc.isenabled():
        yield
        return
    gc.collect(_YOUNG)
    with collector_waiting():
        try:
            yield
        finally:
            if gc.get_freeze_count() == 0:  # else somebody else's objects would be thawed
                gc.freeze()
                gc.unfreeze()


@contextmanager
def collector_waiting() -> Iterator[None]:
    """Keep the garbage collector from running for a moment, as ``collector_paused`` does.

    Other people's young objects stay young: what of theirs is garbage soon is soon collected.
    """
    was_enabled = gc.isenabled()
    try:
        gc.disable()
        yield
    finally:
        if was_enabled:
            gc.enable()
