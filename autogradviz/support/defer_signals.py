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
    from collections.abc import Callable, Generator, Iterator


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


def callback_of_weakref(work: Callable[[], object]) -> Callable[[Any], object]:
    """Return a callback for ``weakref.ref`` that calls a function once.

    Python drops what a callback raises, and handlers of signals run when a Python function begins,
    before its first ``try``. The beginning of this one is a ``yield`` inside ``try``.
    """
    waiting = _call_once(work)
    next(waiting)
    return waiting.send


def _call_once(work: Callable[[], object]) -> Generator[None, Any, None]:
    raised: BaseException | None = None
    try:
        yield
    except GeneratorExit:  # the reference has died first
        return
    except BaseException as error:  # noqa: BLE001 - of a handler
        raised = error
    try:
        work()
    except BaseException as error:  # noqa: BLE001 - Python would drop it here
        raised = error
    if raised is not None:
        interrupt_again(raised)
        raised = None
    yield


PASSING: Final[list[Any]] = []
"""Handlers of our own that do nothing, and may run at any time."""

_ALL: Final = tuple(int(number) for number in signal.valid_signals())


class _Gate:
    """A handler in the place of others: keeps their signals until it is opened."""

    def __init__(self, handlers: dict[int, Any]) -> None:
        self._handlers = handlers
        self._waiting: dict[int, Any] = {}
        self._is_open = False

    def __call__(self, number: int, frame: Any) -> Any:
        if self._is_open:
            return self._handlers[number](number, frame)
        self._waiting.setdefault(number, frame)
        return None

    def open(self) -> None:
        """Call the handlers of the signals that arrived, all of them even if some raise."""
        self._is_open = True
        try:
            while self._waiting:
                number, frame = self._waiting.popitem()
                self._handlers[number](number, frame)
        finally:
            if self._waiting:
                self.open()


@contextmanager
def uninterrupted(numbers: tuple[int, ...] = _ALL) -> Iterator[None]:
    """Defer the handlers of signals until the block is left; they may raise there.

    Args:
        numbers: the signals; all by default. A handler of any signal may raise: that of Ctrl-C, of
            a timeout, and of ``DataLoader`` if a worker has died.
    """
    handlers = {}
    if threading.current_thread() is threading.main_thread():
        # The functions of ``signal`` convert handlers to enums, at ten times the cost.
        found = {number: _signal.getsignal(number) for number in numbers}
        handlers = {
            number: each
            for number, each in found.items()
            if callable(each) and not any(each is passing for passing in PASSING)
        }
    if not handlers:
        yield
        return
    gate = _Gate(handlers)
    try:
        for number in handlers:
            _signal.signal(number, gate)
        yield
    finally:
        try:
            _restore(handlers, gate)
        finally:
            gate.open()


def _restore(handlers: dict[int, Any], gate: _Gate) -> None:
    """Put handlers back; those in their place already may raise meanwhile."""
    try:
        for number, handler in handlers.items():
            if _signal.getsignal(number) is gate:  # else the block has set another one
                _signal.signal(number, handler)
    except BaseException:
        _restore(handlers, gate)
        raise
