"""Defer signals in critical sections, and deliver signals again that arrived in callbacks."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # the C part of ``signal``
import _thread
import functools
import signal
import threading
from contextlib import contextmanager
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator


CHILD_ENDED: Final = (signal.SIGCHLD,) if hasattr(signal, "SIGCHLD") else ()
"""The signal of a child process that has ended, where the system has it."""

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
def uninterrupted(numbers: tuple[int, ...] = (signal.SIGINT, *CHILD_ENDED)) -> Iterator[None]:
    """Defer the handlers of signals until the block is left.

    Args:
        numbers: the signals. By default Ctrl-C, and the end of a child process: the handler of
            ``DataLoader`` raises if a worker has died.
    """
    own = {}
    if threading.current_thread() is threading.main_thread():
        # The functions of ``signal`` convert handlers to enums, at ten times the cost.
        handlers = {number: _signal.getsignal(number) for number in numbers}
        own = {number: each for number, each in handlers.items() if callable(each)}
    if not own:
        yield
        return
    waiting: dict[int, tuple[Any, Any]] = {}

    def wait(number: int, frame: Any) -> None:
        waiting.setdefault(number, (number, frame))

    for number in own:
        _signal.signal(number, wait)
    try:
        yield
    finally:
        for number, handler in own.items():
            _signal.signal(number, handler)
        for number, arguments in waiting.items():
            own[number](*arguments)
