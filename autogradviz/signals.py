"""Signals: Ctrl-C waits while something must not be left half done, and none is ever lost."""

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


_SOON_S: Final = 0.005


def signal_behind(error: BaseException) -> int | None:
    """Return the signal whose handler raised an exception, None where no handler did."""
    codes = set()
    place = error.__traceback__
    while place is not None:
        codes.add(place.tb_frame.f_code)
        place = place.tb_next
    handlers = ((number, signal.getsignal(number)) for number in signal.valid_signals())
    return next((number for number, handler in handlers if _code_of(handler) in codes), None)


def _code_of(handler: Any) -> Any:
    while isinstance(handler, functools.partial):
        handler = handler.func
    if type(handler) is MethodType:
        handler = handler.__func__
    if type(handler) is not FunctionType:
        handler = type(handler).__call__  # None and the defaults have no code
    return getattr(handler, "__code__", None)


def interrupt_again(error: BaseException) -> None:
    """Have the signal whose handler raised come once more, a moment later.

    For who catches it where nothing may be raised: in ``__del__``, in a weak reference's callback.
    """
    number = signal_behind(error)
    if number is None:
        if not isinstance(error, KeyboardInterrupt):
            raise error
        number = signal.SIGINT  # its own handler is C's
    timer = threading.Timer(_SOON_S, _thread.interrupt_main, [number])
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
