"""Defer Ctrl-C in critical sections, and deliver signals again that arrived in callbacks."""

from __future__ import annotations

import _thread
import functools
import signal
import threading
from contextlib import contextmanager
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator


_DELAY_S: Final = 0.005


def signal_behind(error: BaseException) -> int | None:
    """Return the signal whose handler raised an exception, None if no handler did."""
    codes = set()
    traceback = error.__traceback__
    while traceback is not None:
        codes.add(traceback.tb_frame.f_code)
        traceback = traceback.tb_next
    handlers = ((number, signal.getsignal(number)) for number in signal.valid_signals())
    return next((number for number, handler in handlers if _code_of(handler) in codes), None)


def _code_of(handler: Any) -> Any:
    while isinstance(handler, functools.partial):
        handler = handler.func
    if type(handler) is MethodType:
        handler = handler.__func__
    if type(handler) is not FunctionType:
        handler = type(handler).__call__  # None and the default handlers have no code
    return getattr(handler, "__code__", None)


def interrupt_again(error: BaseException) -> None:
    """Send the signal whose handler raised once more, a moment later.

    For code that must not raise: ``__del__`` and callbacks of weak references.
    """
    number = signal_behind(error)
    if number is None:
        if not isinstance(error, KeyboardInterrupt):
            raise error
        number = signal.SIGINT  # the default handler is written in C
    timer = threading.Timer(_DELAY_S, _thread.interrupt_main, [number])
    timer.daemon = True
    timer.start()


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Defer Ctrl-C until the block is left."""
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
