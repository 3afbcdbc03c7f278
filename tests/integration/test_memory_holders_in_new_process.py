"""The tests of holders of memory, in a process that has no objects of other tests."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SOME = "list_of_losses or running_mean"


@pytest.mark.parametrize(
    "selected",
    [SOME, pytest.param(f"not ({SOME})", marks=pytest.mark.ci(reason="reads the heap many times"))],
    ids=["some", "others"],
)
def test_holders_of_memory(selected):
    file = Path(__file__).with_name("test_memory_holders.py")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider",
         "-k", selected, str(file)],
        env={**os.environ, "AUTOGRADVIZ_TEST_HOLDERS": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4_000:]
    assert " passed" in done.stdout
