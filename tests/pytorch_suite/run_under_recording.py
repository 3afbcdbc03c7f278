"""Run the tests of PyTorch with a recording around each, and report changed outcomes.

    python tests/pytorch_suite/run_under_recording.py FILE [modes [expression [every]]]

FILE comes from a checkout of PyTorch near the installed version; wheels do not contain it.
Names of ``torch`` that no longer exist are replaced by mocks, so that the other tests run. Each
test runs unrecorded and recorded, in two processes. Tests with different outcomes or warnings are
printed, and tests with incomplete recordings. Modes are "full", "fingerprints", "graph", "verify"
and "native" (after ``autogradviz native build``), separated by commas, and "empty" for a dispatch
mode that does nothing: changes under that mode are not caused by the recorder. ``expression``
selects tests as ``-k`` of pytest does. With ``every`` 10, each tenth test runs; with 5:10, the
fifth of each ten.

A test that starts a process for each rank is recorded in these processes, which are forked.

With ``AUTOGRADVIZ_TEST_DEVICE`` tensors are created on that device (``chosen_device.py``), and each
test runs in a process of its own.
"""

from __future__ import annotations

import ast
import importlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from unittest.mock import MagicMock

import pytest
import torch
from _pytest.runner import runtestprotocol
from torch.testing._internal.common_distributed import MultiProcessTestCase
from torch.utils._python_dispatch import BaseTorchDispatchMode

import autogradviz

sys.path.insert(0, str(Path(__file__).parents[1]))

import chosen_device

MODES = {
    "plain": nullcontext,
    "empty": BaseTorchDispatchMode,
    "full": partial(autogradviz.record, engine="python"),
    "fingerprints": partial(autogradviz.record, fingerprints=True),
    "graph": partial(autogradviz.record, ops=False),
    "native": partial(autogradviz.record, engine="native"),
    "verify": partial(autogradviz.record, verify=True),
}
WORDS = {
    "test_autograd.py": (
        "TestAutograd and not Functional and not Device and not ForwardMode "
        "or TestNestedCheckpoint or TestSelectiveActivationCheckpoint "
        "or TestAllowMutationOnSaved or TestMultithreadAutograd"
    )
}
TEST_SECONDS = 60
CHILD_SECONDS = 300
FILE_SECONDS = int(os.environ.get("FILE_SECONDS", "1800"))


class Plugin:
    """Opens a recording around each test, and writes the outcome to a file."""

    def __init__(self, surround, every, answer):
        self.surround = surround
        self.every = every
        self.answer = answer
        signal.signal(signal.SIGVTALRM, self.too_long)

    def write(self, test, kind, text):
        self.answer.write(json.dumps([test.rpartition("/")[2], kind, text]) + "\n")
        self.answer.flush()  # keep it after a crash

    def too_long(self, *_):
        raise TimeoutError(f"longer than {TEST_SECONDS} s")

    def pytest_collection_modifyitems(self, items):
        items[:] = items[self.every]

    def pytest_runtest_protocol(self, item):
        if chosen_device.ON_HOST:
            return None
        child = os.fork()
        if child == 0:
            try:
                runtestprotocol(item, nextitem=None)
            finally:
                self.answer.flush()
                os._exit(0)
        ended = time.monotonic() + CHILD_SECONDS
        while os.waitpid(child, os.WNOHANG) == (0, 0):
            if time.monotonic() > ended:
                os.kill(child, signal.SIGKILL)
            time.sleep(0.01)
        return True

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_call(self, item):
        self.write(item.nodeid, "ended", "died")
        self.running = item.nodeid
        signal.setitimer(signal.ITIMER_VIRTUAL, TEST_SECONDS)  # CPU time of this process only
        has_processes = item.cls is not None and issubclass(item.cls, MultiProcessTestCase)
        surrounding = nullcontext() if has_processes else self.surround()
        surrounding.__enter__()
        try:
            ended = yield
            self.close(surrounding, item.nodeid, ended.excinfo)
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)

    def record_in_each_process(self):
        """Fork the processes of distributed tests, and record the test in each."""
        run_test = MultiProcessTestCase.run_test

        def fork(test):
            test._start_processes(torch.multiprocessing.get_context("fork").Process)

        def run_recorded_test(test, name, pipe):
            run = getattr(test, name)

            def recorded():
                surrounding = self.surround()
                surrounding.__enter__()
                try:
                    run()
                except BaseException:
                    self.close(surrounding, self.running, sys.exc_info())
                    raise
                self.close(surrounding, self.running, None)

            setattr(test, name, recorded)
            run_test(test, name, pipe)

        MultiProcessTestCase._spawn_processes = fork
        MultiProcessTestCase.run_test = run_recorded_test

    def close(self, surrounding, test, raised):
        if not isinstance(surrounding, autogradviz.record):
            surrounding.__exit__(*(raised or (None, None, None)))
            return
        failures = surrounding._recording.finish(raised and raised[1])
        if failures is not None and failures.summary:
            self.write(test, "missed", failures.summary)

    def pytest_warning_recorded(self, warning_message, nodeid):
        self.write(nodeid, "warned", without_numbers(str(warning_message.message)))

    def pytest_runtest_logreport(self, report):
        if report.when == "call" or report.outcome != "passed":
            error = str(report.longrepr).splitlines()[-1:] if report.failed else []
            self.write(
                report.nodeid, "ended", " ".join([report.outcome, *map(without_numbers, error)])
            )


def without_numbers(message):
    """Remove addresses and times, which differ between runs, from the first line."""
    return re.sub(r"0x[0-9a-f]+|\d+\.\d+s?", "…", message.partition("\n")[0])


def mock_missing_names(path):
    """Mock the modules and names of ``torch`` that a file imports and that no longer exist."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("torch"):
            for name in node.names:
                try:
                    exec(ast.unparse(ast.ImportFrom(node.module, [name], 0)))
                except ImportError:
                    with suppress(ImportError):
                        setattr(importlib.import_module(node.module), name.name, MagicMock())
                        continue
                    sys.modules[node.module] = MagicMock()


def outcomes(path, mode, words, every):
    """Run the tests in a separate process; return the outcome and warnings of each."""
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "outcomes.jsonl"
        stopped = False
        try:
            subprocess.run(
                [sys.executable, __file__, str(path), mode, words, every],
                env={
                    **os.environ,
                    "AUTOGRADVIZ_ANSWER": str(answer),
                    "TORCHINDUCTOR_CACHE_DIR": folder,  # without a cache, compilation warns again
                },
                stdout=subprocess.DEVNULL,
                check=False,
                timeout=FILE_SECONDS,
            )
        except subprocess.TimeoutExpired:
            print(f"{mode}: stopped after {FILE_SECONDS} s")
            stopped = True
        found = {}
        for line in answer.read_text().splitlines():
            test, kind, text = json.loads(line)
            of_test = found.setdefault(test, {"warned": set()})
            if kind == "warned":
                of_test["warned"].add(text)
            else:
                of_test[kind] = text
        nothing = {None, "died"} if stopped else {None}
        return {test: it for test, it in found.items() if it.get("ended") not in nothing}


def run_here(path, mode, words, every):
    """Run the tests in this process, and write the outcomes to the parent's file."""
    os.chdir(path.parent)  # it imports modules of its folder
    chosen_device.enter()
    mock_missing_names(path)
    with Path(os.environ["AUTOGRADVIZ_ANSWER"]).open("w") as answer:
        first, _, step = every.rpartition(":")
        plugin = Plugin(MODES[mode], slice(int(first or 0), None, int(step)), answer)
        plugin.record_in_each_process()
        with MODES[mode]():  # import here what forked processes need
            pass
        # The conftest.py of PyTorch needs an older pytest, and shards and reruns tests.
        words = ["--noconftest", "-q", "-p", "no:cacheprovider", "-k", words]
        pytest.main([path.name, *words], plugins=[plugin])


def main(path, modes="full", words=None, every="1"):
    path = Path(path).resolve()
    words = WORDS.get(path.name, "") if words is None else words
    if "AUTOGRADVIZ_ANSWER" in os.environ:
        run_here(path, modes, words, every)
        return
    plain = outcomes(path, "plain", words, every)
    passed = sum(of_test["ended"] == "passed" for of_test in plain.values())
    print(f"{path.name}: {len(plain)} tests, {passed} pass plain")
    for mode in modes.split(","):
        seen = outcomes(path, mode, words, every)
        changed = [test for test in seen if test in plain and seen[test] != plain[test]]
        for test in changed:
            print(f"  {test}")
            for kind, text in seen[test].items():
                if text != plain[test].get(kind):
                    print(f"    {kind}: {plain[test].get(kind)} → {text}")
        print(f"{len(changed)} of {len(seen)} changed under record({mode})", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
