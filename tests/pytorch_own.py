"""PyTorch's own tests with a recording around each: what changes?

    python tests/pytorch_own.py path/to/pytorch/test/test_autograd.py [mode] [pytest's -k]

The file comes from a checkout of PyTorch of about the installed version; it is in no wheel. Each
test runs plain and recorded, in two processes, and those whose outcome differs are printed. Modes
are "full", "values" and "graph".
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

MODES = {"plain": None, "full": {}, "values": {"values": True}, "graph": {"ops": False}}
CLASSES = (
    "TestAutograd and not Functional and not Device and not ForwardMode or TestNestedCheckpoint "
    "or TestSelectiveActivationCheckpoint or TestAllowMutationOnSaved or TestMultithreadAutograd"
)


class Plugin:
    """Opens a recording around each test, and keeps how it ended."""

    def __init__(self, options):
        self.options = options
        self.outcomes = {}

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_call(self):
        import autogradviz

        if self.options is None:
            yield
            return
        recording = autogradviz.record(**self.options)
        recording.__enter__()
        ended = yield
        recording.__exit__(*(ended.excinfo or (None, None, None)))

    def pytest_runtest_logreport(self, report):
        if report.when == "call" or report.outcome != "passed":
            said = str(report.longrepr).splitlines()[-1:] if report.failed else []
            self.outcomes[report.nodeid.rpartition("/")[2]] = [report.outcome, *said]


def outcomes(path, mode, words):
    """Run the tests in a process of their own; return each one's outcome."""
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "outcomes.json"
        subprocess.run(
            [sys.executable, __file__, str(path), mode, words],
            env={**os.environ, "AUTOGRADVIZ_ANSWER": str(answer)},
            stdout=subprocess.DEVNULL,
            check=False,
        )
        return json.loads(answer.read_text())


def run_here(path, mode, words):
    """Run the tests in this process, and write their outcomes where the parent waits for them."""
    os.chdir(path.parent)  # it imports its neighbours
    plugin = Plugin(MODES[mode])
    pytest.main([path.name, "-q", "-p", "no:cacheprovider", "-k", words], plugins=[plugin])
    Path(os.environ["AUTOGRADVIZ_ANSWER"]).write_text(json.dumps(plugin.outcomes))


def main(path, mode="full", words=CLASSES):
    path = Path(path).resolve()
    if "AUTOGRADVIZ_ANSWER" in os.environ:
        run_here(path, mode, words)
        return
    plain, seen = outcomes(path, "plain", words), outcomes(path, mode, words)
    passed = sum(outcome[0] == "passed" for outcome in plain.values())
    print(f"{len(plain)} tests, {passed} pass plain")
    changed = [name for name in plain if plain[name][0] != seen.get(name, ["missing"])[0]]
    for name in changed:
        print(f"{name}: {plain[name][0]} → {seen.get(name, ['missing'])}")
    print(f"{len(changed)} changed under record({mode})")


if __name__ == "__main__":
    main(*sys.argv[1:])
