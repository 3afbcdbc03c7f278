"""The watch for signals and hangs while the main thread does not execute Python."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from autogradviz.recording.interruption_watch import InterruptionWatch

BLOCKED = """
import os, signal, sys, threading, time
from autogradviz.recording.interruption_watch import InterruptionWatch
watch = InterruptionWatch(lambda reason: print(reason, flush=True), lambda: 0)
watch.start()
threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM)).start()
time.sleep(60)
"""


WITH_EVENT_LOOP = """
import asyncio, os, signal, sys, time
from autogradviz.recording.interruption_watch import InterruptionWatch

async def main():
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGUSR1, print)
    if sys.argv[1] == "during":
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(10)
    loop.remove_signal_handler(signal.SIGUSR1)

watch = InterruptionWatch(lambda reason: print(reason, flush=True), lambda: 0)
watch.start()
asyncio.run(main())
os.kill(os.getpid(), signal.SIGTERM)
time.sleep(10)
"""

STOPPED = """
import os, signal, sys, time
from autogradviz.recording.interruption_watch import InterruptionWatch
reported = lambda reason: (print(reason, flush=True), time.sleep(10))
watch = InterruptionWatch(reported, lambda: 0)
watch.start()
os.kill(os.getpid(), signal.SIGTERM)
if sys.argv[1] == "reporting":
    time.sleep(2)
watch.stop()
"""


@pytest.mark.parametrize("when", ["at once", "reporting"])
def test_sigterm_before_the_end_of_the_recording_is_not_lost(when):
    command = [sys.executable, "-c", STOPPED, when]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == -signal.SIGTERM


@pytest.mark.parametrize(
    ("program", "when"), [(BLOCKED, ""), (WITH_EVENT_LOOP, "during"), (WITH_EVENT_LOOP, "after")]
)
def test_sigterm_is_reported_and_then_ends_the_process(program, when):
    command = [sys.executable, "-c", program, when]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.returncode) == ("SIGTERM\n", -signal.SIGTERM)


def test_hang_is_reported_once():
    reasons = []
    done = threading.Event()

    def report(reason):
        reasons.append(reason)
        done.set()

    watch = InterruptionWatch(report, lambda: 0, hang_s=0.01)
    watch.start()
    assert done.wait(30)
    watch.stop()
    assert reasons == ["no event for 0.01 s"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_handlers_are_restored_also_in_a_forked_child():
    watch = InterruptionWatch(lambda _: None, lambda: 0)
    before = signal.getsignal(signal.SIGTERM)
    watch.start()
    assert signal.getsignal(signal.SIGTERM) is not before
    child = os.fork()
    if child == 0:
        os._exit(0 if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL else 1)
    assert os.waitpid(child, 0)[1] == 0
    watch.stop()
    assert signal.getsignal(signal.SIGTERM) is before
    left = signal.set_wakeup_fd(-1)
    assert left == -1


def test_handler_of_the_program_stays():
    before = signal.signal(signal.SIGTERM, handler := lambda *_: None)
    try:
        watch = InterruptionWatch(lambda _: None, lambda: 0)
        watch.start()
        assert signal.getsignal(signal.SIGTERM) is handler
        watch.stop()
        assert signal.getsignal(signal.SIGTERM) is handler
    finally:
        signal.signal(signal.SIGTERM, before)
