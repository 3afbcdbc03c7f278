"""Signals whose handlers run after a critical section."""

import os
import signal
import sys
import time
import weakref
from _thread import interrupt_main
from functools import partial

import pytest

from autogradviz.support.defer_and_redeliver_signals import (
    callback_of_weakref,
    called_when_freed,
    interrupt_again,
    uninterrupted,
    without_raising,
)

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGCHLD"), reason="needs SIGCHLD")


def test_handler_of_an_ended_child_raises_after_the_block():
    def raise_as_the_data_loader(*_):
        message = "a worker is killed"
        raise RuntimeError(message)

    before = signal.signal(signal.SIGCHLD, raise_as_the_data_loader)
    passed = []
    try:
        with pytest.raises(RuntimeError, match="killed"), uninterrupted():
            os.kill(os.getpid(), signal.SIGCHLD)
            passed.append("the end of the block")
        assert signal.getsignal(signal.SIGCHLD) is raise_as_the_data_loader
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert passed == ["the end of the block"]


class Owner:
    pass


def run_for_seconds(number):
    """Run a loop; in Python 3.12 and 3.13 some exceptions of handlers pass a ``try`` around it."""
    deadline = time.monotonic() + number
    while time.monotonic() < deadline:
        pass


@pytest.mark.parametrize("kind", [Exception, KeyboardInterrupt])
def test_no_exception_of_a_handler_is_lost_in_a_callback_of_a_weak_reference(kind, monkeypatch):
    def ring(*_):
        raise kind("rang")

    called, dropped, holder = [], [], [Owner()]
    monkeypatch.setattr(sys, "unraisablehook", dropped.append)
    reference = weakref.ref(holder[0], callback_of_weakref(partial(called.append, 1)))
    before = signal.signal(signal.SIGINT, ring)
    try:
        with pytest.raises(kind, match="rang"):
            # Only C runs: the signal is pending when the callback begins.
            list(map(partial.__call__, [partial(interrupt_main), partial(holder.clear)]))
            run_for_seconds(10)  # the signal is sent again from another thread
    finally:
        signal.signal(signal.SIGINT, before)
    assert reference() is None
    assert dropped == []
    assert called == [1]


def test_callback_of_a_weak_reference_is_called_once_or_freed_before():
    called, owner, other = [], Owner(), Owner()
    reference = weakref.ref(owner, callback_of_weakref(partial(called.append, 1)))
    weakref.ref(other, callback_of_weakref(partial(called.append, 1)))
    del other
    assert called == []
    del owner
    assert called == [1]
    assert reference() is None


def slow(frame, event, _):
    """Take longer than any delay before a signal is sent again; see ``sys.setprofile``."""
    if frame.f_code is interrupt_again.__code__ and event == "return":
        sys.setprofile(None)
    elif event == "call":
        time.sleep(0.002)


@pytest.mark.parametrize("kind", ["callback", "finalizer"])
def test_no_exception_of_a_handler_is_lost_however_slow_the_callback_is(kind, monkeypatch):
    def ring(*_):
        sys.setprofile(slow)
        message = "rang"
        raise ValueError(message)

    dropped, owner = [], Owner()
    monkeypatch.setattr(sys, "unraisablehook", dropped.append)
    if kind == "callback":
        reference = weakref.ref(owner, callback_of_weakref(interrupt_main))
    else:
        owner.freed_with_it = called_when_freed(interrupt_main)
        reference = weakref.ref(owner)
    before = signal.signal(signal.SIGINT, ring)
    try:
        with pytest.raises(ValueError, match="rang"):
            del owner
            run_for_seconds(10)
    finally:
        sys.setprofile(None)
        signal.signal(signal.SIGINT, before)
    assert reference() is None
    assert dropped == []


def test_a_finalizer_is_called_once_when_the_object_is_freed():
    called, owner = [], Owner()
    owner.freed_with_it = called_when_freed(partial(called.append, 1))
    assert called == []
    del owner
    assert called == [1]


def test_the_signal_of_a_handler_that_raised_is_sent_again_after_code_that_must_not_raise():
    def ring(*_):
        message = "rang"
        raise ValueError(message)

    def work():
        interrupt_main()
        return 1

    passed = []
    before = signal.signal(signal.SIGINT, ring)
    try:
        with pytest.raises(ValueError, match="rang"):
            passed.append(without_raising(work, 0))
            run_for_seconds(10)
    finally:
        signal.signal(signal.SIGINT, before)
    assert passed == [0]


def test_an_error_of_no_handler_is_raised():
    with pytest.raises(ZeroDivisionError):
        without_raising(lambda: 1 // 0, 0)
