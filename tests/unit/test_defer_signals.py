"""Signals whose handlers run after a critical section."""

import os
import signal

import pytest

from autogradviz.support.defer_signals import uninterrupted

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
