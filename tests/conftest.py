"""Options, markers and fixtures of all tests."""

from __future__ import annotations

import os
import sys
import zlib
from pathlib import Path

import own_environment
import pytest

sys.path.insert(0, str(Path(__file__).parent / "bench"))

own_environment.enter()

ENGINE = os.environ.get("AUTOGRADVIZ_TEST_ENGINE", "python")
NO_BUILD = Path(__file__).parent / "no-native-build"
if ENGINE == "python":  # the folder does not exist, so no build of the native engine is found
    os.environ["AUTOGRADVIZ_CACHE"] = str(NO_BUILD)

GOLDEN = Path(__file__).parent / "golden"


def pytest_addoption(parser):
    parser.addoption(
        "--update-golden", action="store_true", help="overwrite golden files; review the diff"
    )


def skip_most(item, n, reason, in_ci=None):
    """Leave one in ``n`` cases to `make test`, and one in ``in_ci`` to continuous integration."""
    number = zlib.crc32(item.name.encode())  # the same cases in every run
    if number % (in_ci or n):
        item.add_marker(pytest.mark.slow(reason=reason))
    elif number % n:
        item.add_marker(pytest.mark.ci(reason=reason))


def pytest_collection_modifyitems(items):
    for item in items:
        for marker in item.iter_markers("one_in"):
            skip_most(item, marker.args[0], **marker.kwargs)
    # The files with the longest tests begin first, so that no process ends with one of them.
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)
    for item in items:
        for marker in (*item.iter_markers("slow"), *item.iter_markers("ci")):
            if not marker.kwargs.get("reason"):
                message = f"{item.nodeid}: pytest.mark.{marker.name} needs reason=..."
                raise pytest.UsageError(message)
        if ENGINE == "native":
            for marker in item.iter_markers("python_engine"):
                item.add_marker(
                    pytest.mark.skip(reason=f"Python engine: {marker.kwargs['reason']}")
                )


@pytest.fixture(autouse=True)
def own_compilations():
    """Let no test find what an earlier one compiled, in the process or in a cache on disk."""
    own_environment.forget_compilations()


@pytest.fixture(autouse=True)
def no_build_in_background():
    """Check that no recording has started a build of the native engine."""
    yield
    assert not NO_BUILD.exists()


@pytest.fixture
def golden(request):
    """Compare a text with ``tests/golden/<name>``."""

    def check(name, text):
        path = GOLDEN / name
        if request.config.getoption("--update-golden"):
            path.write_text(text, encoding="utf-8")
        assert text == path.read_text(encoding="utf-8")

    return check


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    """Return the cache folder of the environment; build in a temporary one if that has no build.

    Tests of the native engine are skipped with versions that it does not support.
    """
    from autogradviz.recorder.native import build

    if problem := build.unsupported():
        pytest.skip(problem)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AUTOGRADVIZ_CACHE", os.environ["AUTOGRADVIZ_TEST_CACHE"])
        if build.status().usable:
            return build.cache_folder()
        folder = tmp_path_factory.mktemp("native-cache")
        patch.setenv("AUTOGRADVIZ_CACHE", str(folder))
        build.build()
        assert build.status().usable
    return folder


@pytest.fixture
def native(built, monkeypatch):
    """Let recordings of a test find the extension."""
    monkeypatch.setenv("AUTOGRADVIZ_CACHE", str(built))
