"""Locks that a forked child does not wait for."""

from __future__ import annotations

import ast
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest
from forked_child import run_in_child

import autogradviz
from autogradviz.support.locks_gc_and_stderr import new_lock
from autogradviz.support.source_lines_and_libraries import parse

PACKAGE = Path(autogradviz.__file__).parent
NEVER_WAITED_FOR = {"recorder/retention/retention_policy_and_saves_by_step.py"}
"""A thread that finds this lock held, or waits for one second, does not do the work."""

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@contextmanager
def held_by_another_thread(lock):
    held, may_release = threading.Event(), threading.Event()

    def hold():
        with lock:
            held.set()
            may_release.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(60)
    try:
        yield
    finally:
        may_release.set()
        thread.join()


def test_child_can_take_a_lock_that_another_thread_held_at_the_fork():
    lock = new_lock()
    with held_by_another_thread(lock):
        assert not lock.acquire(blocking=False)
        assert run_in_child(lambda: lock.acquire(blocking=False)) == "True"
        assert not lock.acquire(blocking=False)


def test_child_of_a_thread_that_holds_a_lock_holds_it_too():
    lock = new_lock()

    def release():
        lock.release()
        with held_by_another_thread(lock):
            return lock.acquire(blocking=False)

    with lock:
        assert run_in_child(release) == "False"


@pytest.mark.ci(reason="forks for every lock")
def test_every_lock_is_free_in_a_forked_child():
    kinds = {"Lock", "RLock", "Condition", "Semaphore", "BoundedSemaphore"}
    found = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        for call in ast.walk(parse(path.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)
        if ast.unparse(call.func.value) == "threading" and call.func.attr in kinds
    }
    assert found == {"support/locks_gc_and_stderr.py", *NEVER_WAITED_FOR}
