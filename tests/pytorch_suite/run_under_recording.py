"""PyTorch's own tests with a recording around each: what changes?

    python tests/pytorch_suite/run_under_recording.py FILE [modes] [-k's words] [every]

The file comes from a checkout of PyTorch of about the installed version; it is in no wheel. What it
imports of ``torch`` and is not there any more is stood in for, so that its other tests run. Each
test runs plain and recorded, in two processes. Printed are those that end otherwise, that warn
otherwise, and of which the recorder says that it could not record everything. Modes are "full",
"fingerprints" and "graph", several with commas between, and "empty" for PyTorch's dispatch mode
that does nothing: what changes under that too cannot be helped. With ``every`` 10 each tenth test
is run.
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
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from unittest.mock import MagicMock

import pytest
from torch.utils._python_dispatch import BaseTorchDispatchMode

import autogradviz

MODES = {
    "plain": nullcontext,
    "empty": BaseTorchDispatchMode,
    "full": autogradviz.record,
    "fingerprints": partial(autogradviz.record, fingerprints=True),
    "graph": partial(autogradviz.record, ops=False),
}
WORDS = {
    "test_autograd.py": (
        "TestAutograd and not Functional and not Device and not ForwardMode "
        "or TestNestedCheckpoint or TestSelectiveActivationCheckpoint "
        "or TestAllowMutationOnSaved or TestMultithreadAutograd"
    )
}
TEST_SECONDS = 60
FILE_SECONDS = int(os.environ.get("FILE_SECONDS", "1800"))


class Plugin:
    """Opens a recording around each test, and writes down how it ended."""

    def __init__(self, surround, every, answer):
        self.surround = surround
        self.every = every
        self.answer = answer
        signal.signal(signal.SIGVTALRM, self.too_long)

    def tell(self, test, what, said):
        self.answer.write(json.dumps([test.rpartition("/")[2], what, said]) + "\n")
        self.answer.flush()  # a crash must not take it along

    def too_long(self, *_):
        raise TimeoutError(f"longer than {TEST_SECONDS} s")

    def pytest_collection_modifyitems(self, items):
        items[:] = items[:: self.every]

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_call(self, item):
        self.tell(item.nodeid, "ended", "died")
        signal.setitimer(signal.ITIMER_VIRTUAL, TEST_SECONDS)  # not what others take
        surrounding = self.surround()
        surrounding.__enter__()
        try:
            ended = yield
            self.close(surrounding, item.nodeid, ended.excinfo)
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)

    def close(self, surrounding, test, raised):
        if not isinstance(surrounding, autogradviz.record):
            surrounding.__exit__(*(raised or (None, None, None)))
            return
        failures = surrounding._recording.finish(raised and raised[1])
        if failures is not None and failures.summary:
            self.tell(test, "missed", failures.summary)

    def pytest_warning_recorded(self, warning_message, nodeid):
        self.tell(nodeid, "warned", plain_words(str(warning_message.message)))

    def pytest_runtest_logreport(self, report):
        if report.when == "call" or report.outcome != "passed":
            said = str(report.longrepr).splitlines()[-1:] if report.failed else []
            self.tell(report.nodeid, "ended", " ".join([report.outcome, *map(plain_words, said)]))


def plain_words(message):
    """Leave out of the first line what differs from run to run: addresses and times."""
    return re.sub(r"0x[0-9a-f]+|\d+\.\d+s?", "…", message.partition("\n")[0])


def stand_in(path):
    """Put something in the places of what a file imports of PyTorch and is not there any more."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("torch"):
            for name in node.names:
                try:
                    exec(ast.unparse(ast.ImportFrom(node.module, [name], 0)))
                except ImportError:
                    with suppress(ImportError):
                        setattr(importlib.import_module(node.module), name.name, MagicMock())


def outcomes(path, mode, words, every):
    """Run the tests in a process of their own; return what was told of each."""
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "outcomes.jsonl"
        stopped = False
        try:
            subprocess.run(
                [sys.executable, __file__, str(path), mode, words, every],
                env={
                    **os.environ,
                    "AUTOGRADVIZ_ANSWER": str(answer),
                    "TORCHINDUCTOR_CACHE_DIR": folder,  # what is compiled anew warns anew
                },
                stdout=subprocess.DEVNULL,
                check=False,
                timeout=FILE_SECONDS,
            )
        except subprocess.TimeoutExpired:
            print(f"{mode}: stopped after {FILE_SECONDS} s")
            stopped = True
        told = {}
        for line in answer.read_text().splitlines():
            test, what, said = json.loads(line)
            of_test = told.setdefault(test, {"warned": set()})
            if what == "warned":
                of_test["warned"].add(said)
            else:
                of_test[what] = said
        nothing = {None, "died"} if stopped else {None}
        return {test: it for test, it in told.items() if it.get("ended") not in nothing}


def run_here(path, mode, words, every):
    """Run the tests in this process, and write what happens where the parent waits for it."""
    os.chdir(path.parent)  # it imports its neighbors
    stand_in(path)
    with Path(os.environ["AUTOGRADVIZ_ANSWER"]).open("w") as answer:
        plugin = Plugin(MODES[mode], int(every), answer)
        # PyTorch's conftest.py is for an older pytest, and shards and reruns.
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
            for what, said in seen[test].items():
                if said != plain[test].get(what):
                    print(f"    {what}: {plain[test].get(what)} → {said}")
        print(f"{len(changed)} of {len(seen)} changed under record({mode})", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
