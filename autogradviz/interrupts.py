"""Ctrl-C waits while what must not be left half done is done."""

from __future__ import annotations

import _thread
import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator


_SOON_S: Final = 0.005


def interrupt_again() -> None:
    """Have Ctrl-C come once more, a moment later.

    For who catches it where nothing may be raised: in ``__del__``, in a weak reference's callback.
    """
    timer = threading.Timer(_SOON_S, _thread.interrupt_main)
    timer.daemon = True
    timer.start()


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold Ctrl-C back until the block is left; it is then handled as it would have been."""
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    waiting: list[tuple[Any, Any]] = []
    signal.signal(signal.SIGINT, lambda *arguments: waiting.append(arguments))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if waiting:
            handler(*waiting[0])
