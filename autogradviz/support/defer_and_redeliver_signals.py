"""Defer signals in critical sections, and deliver signals again that arrived in callbacks."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # the C part of ``signal``
import _thread
import functools
import signal
import threading
import time
from contextlib import contextmanager
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator


CHILD_ENDED: Final = (signal.SIGCHLD,) if hasattr(signal, "SIGCHLD") else ()
"""The signal of a child process that has ended, where the system has it."""

_T = TypeVar("_T")

_POLL_S: Final = 0.001

_TRIES: Final = 100
"""More than the signals of a timer that ring while one exception is examined."""


def signal_behind(error: BaseException) -> int | None:
    """Return the signal whose handler raised an exception, None if no handler did.

    Other handlers may raise meanwhile; the first exception is still that of its signal.
    """
    for _ in range(_TRIES):
        try:
            return _signal_behind(error)
        except Exception:  # noqa: BLE001, S112 - of another signal, or of an audit hook
            continue
    return None  # an audit hook of the program refuses to read frames


def _signal_behind(error: BaseException) -> int | None:
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


# NOTE [ Signals of callbacks ]
# Python drops what a finalizer or the callback of a weak reference raises, and it runs the handlers
# of signals when a Python function begins, before its first ``try``. So both are generators here,
# which begin at a ``yield`` inside ``try``. A signal whose handler raised in one is sent once more,
# by another thread, when the generator has ended; on a busy machine that is later than any delay.
# It has ended with an assignment: Python runs no handler until the program goes on.


def interrupt_again(raised: tuple[BaseException, ...], ended: list[bool]) -> None:
    """Send the signals whose handlers raised once more, when the code has ended they raised in.

    Args:
        raised: exceptions; one that comes from no handler is raised again.
        ended: one element, which that code sets when it ends.
    """
    numbers: set[int] = set()
    foreign: BaseException | None = None
    for error in raised:
        number = signal_behind(error)
        if number is None and isinstance(error, KeyboardInterrupt):
            number = signal.SIGINT  # the default handler is written in C
        if number is None:
            foreign = error
        else:
            numbers.add(number)
    if numbers:
        _thread.start_new_thread(_interrupt_after, (numbers, ended))
    if foreign is not None:
        raise foreign


def _interrupt_after(numbers: set[int], ended: list[bool]) -> None:
    while not ended[0]:
        time.sleep(_POLL_S)
    for number in numbers:
        _thread.interrupt_main(number)  # type: ignore[arg-type]  # any number


def without_raising(work: Callable[[], _T], otherwise: _T) -> _T:
    """Return the result of a function, or the other value if a signal handler raised in it.

    For what C++ calls where it must drop exceptions; the signal is sent again afterwards.
    """
    ended = [False]
    try:
        return work()
    except BaseException as error:  # noqa: BLE001 - only exceptions of handlers end here
        interrupt_again((error,), ended)
        return otherwise
    finally:
        ended[0] = True


def callback_of_weakref(work: Callable[[], object]) -> Callable[[Any], object]:
    """Return a callback for ``weakref.ref`` that calls a function once, if the object dies first.

    See NOTE [ Signals of callbacks ].
    """
    waiting = _call_once(work, when_freed=False)
    next(waiting)
    return waiting.send


def called_when_freed(work: Callable[[], object]) -> object:
    """Return an object that calls a function when it is freed, as one with ``__del__`` would.

    See NOTE [ Signals of callbacks ].
    """
    waiting = _call_once(work, when_freed=True)
    next(waiting)
    return waiting


def _let_handlers_run() -> None:
    pass


def _call_once(work: Callable[[], object], *, when_freed: bool) -> Generator[None, Any, None]:
    raised: tuple[BaseException, ...] = ()
    ended = [False]
    try:
        yield
    except GeneratorExit:
        if not when_freed:  # the reference has died first
            return
    except BaseException as error:  # noqa: BLE001 - of a handler
        raised = (error,)
    try:
        _let_handlers_run()  # here, and not at the beginning of the work, which they would end
    except BaseException as error:  # noqa: BLE001 - as above
        raised = (*raised, error)
    try:
        work()
    except BaseException as error:  # noqa: BLE001 - Python would drop it here
        raised = (*raised, error)
    if raised:
        try:
            interrupt_again(raised, ended)
        except BaseException as error:  # noqa: BLE001 - of another handler, meanwhile
            interrupt_again((*raised, error), ended)
        finally:
            raised = ()  # whose frames refer to it
            ended[0] = True
    if not when_freed:
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
