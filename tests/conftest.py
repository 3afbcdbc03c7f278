"""Options, markers and fixtures of all tests."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "bench"))

# One thread per process: the tests already run in parallel. Set before PyTorch is imported, and
# inherited by the interpreters that the tests start.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Inductor compiles in the process itself: a pool of its processes would import PyTorch first.
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")

# The engine that records unless a test asks for another: "python", or "native" if it is built.
os.environ.setdefault("AUTOGRADVIZ_TEST_CACHE", os.environ.get("AUTOGRADVIZ_CACHE", ""))
ENGINE = os.environ.get("AUTOGRADVIZ_TEST_ENGINE", "python")
if ENGINE == "python":  # the folder does not exist, so no build of the native engine is found
    os.environ["AUTOGRADVIZ_CACHE"] = str(Path(__file__).parent / "no-native-build")

GOLDEN = Path(__file__).parent / "golden"


def pytest_addoption(parser):
    parser.addoption(
        "--update-golden", action="store_true", help="overwrite golden files; review the diff"
    )


def pytest_collection_modifyitems(items):
    # The files with the longest tests begin first, so that no process ends with one of them.
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)
    for item in items:
        for marker in item.iter_markers("slow"):
            if not marker.kwargs.get("reason"):
                message = f"{item.nodeid}: pytest.mark.slow needs reason=..."
                raise pytest.UsageError(message)
        if ENGINE == "native":
            for marker in item.iter_markers("python_engine"):
                item.add_marker(
                    pytest.mark.skip(reason=f"Python engine: {marker.kwargs['reason']}")
                )


@pytest.fixture
def golden(request):
    """Compare a text with ``tests/golden/<name>``."""

    def check(name, text):
        path = GOLDEN / name
        if request.config.getoption("--update-golden"):
            path.write_text(text, encoding="utf-8")
        assert text == path.read_text(encoding="utf-8")

    return check
