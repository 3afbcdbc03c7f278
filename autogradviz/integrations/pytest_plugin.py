"""The pytest plugin: record tests, and show the findings of those that fail.

``pytest --autogradviz`` records every test. A test that fails has the findings in its report, and a
trace in a folder. ``@pytest.mark.autogradviz_no_findings`` records a test in any case and fails it
if anything is found. The fixture ``autogradviz_record`` is ``autogradviz.record``, for tests that
record a part. The fixture ``autogradviz_check`` is ``autogradviz.check``, and fails the test if a
relation fails.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from autogradviz.checking.result import CheckResult
    from autogradviz.diagnose import Finding
    from autogradviz.recording.record_context_manager import record
    from autogradviz.trace import Trace

OPTION: Final = "--autogradviz"
MARKER: Final = "autogradviz_no_findings"
DEFAULT_FOLDER: Final = "autogradviz-traces"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--autogradviz`` to the command line of pytest."""
    parser.getgroup("autogradviz").addoption(
        OPTION,
        metavar="FOLDER",
        nargs="?",
        const=DEFAULT_FOLDER,
        help="record each test; one that fails has the findings in its report and a trace in "
        f"FOLDER (default: {DEFAULT_FOLDER}). Write --autogradviz=FOLDER before file names",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, and check the folder."""
    folder = config.getoption(OPTION, None)
    if folder is not None and _has_tests(config.rootpath / folder.partition("::")[0]):
        message = (
            f"{OPTION} takes a folder for traces, and {folder} has tests: write {OPTION}=FOLDER, "
            f"or {OPTION} after {folder}"
        )
        raise pytest.UsageError(message)
    config.addinivalue_line(
        "markers",
        f"{MARKER}(allow=(), hints=False): record the test, and fail it if autogradviz finds a "
        "problem whose name is not in allow; hints count only with hints=True",
    )


def _has_tests(path: Path) -> bool:
    """Return whether a path is a file, or a folder with Python files."""
    return path.is_file() or (path.is_dir() and any(path.glob("*.py")))


@pytest.fixture
def autogradviz_record() -> type[record]:
    """Return ``autogradviz.record``."""
    from autogradviz.recording.record_context_manager import record

    return record


@pytest.fixture
def autogradviz_check() -> Callable[..., CheckResult]:
    """Return ``autogradviz.check``; a relation that fails fails the test."""
    from autogradviz.checking.try_each_relation import check

    def checked(*args: Any, **options: Any) -> CheckResult:
        __tracebackhide__ = True
        result = check(*args, **options)
        if not result.ok:
            pytest.fail(str(result), pytrace=False)
        return result

    return checked


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Record a test, if the option or the marker is given."""
    folder = item.config.getoption(OPTION, None)
    marker = item.get_closest_marker(MARKER)
    if folder is None and marker is None:
        return (yield)
    accepts = _read_marker(marker) if marker is not None else None
    from autogradviz.recording.record_between_callbacks import OpenEndedRecording
    from autogradviz.recording_options import RecordingOptions

    earlier: list[Trace] = []
    recording = OpenEndedRecording(RecordingOptions(), on_suspend=earlier.append)
    recording.begin()
    target = item.config.rootpath / Path(folder or DEFAULT_FOLDER)
    try:
        result = yield
    except BaseException as error:
        # The finding explains exceptions of PyTorch; an assertion is about results.
        trace = recording.finish(None if isinstance(error, AssertionError) else error)
        if trace is not None and not (_is_outcome(error) or item.get_closest_marker("xfail")):
            _report(item, trace, target, has_note=not isinstance(error, AssertionError))
        raise
    trace = recording.finish()
    if trace is not None and accepts is not None:
        traces = (*earlier, trace)
        found = [each for one in traces for each in one.diagnose() if not accepts(each)]
        if found:
            _report(item, trace, target, has_note=False)
            names = ", ".join(f"{each.slug} ({each.confidence})" for each in found)
            pytest.fail(f"autogradviz found: {names}", pytrace=False)
    return result


def _is_outcome(error: BaseException) -> bool:
    """Return whether an exception is a skip, or ends the whole session."""
    return isinstance(error, (pytest.skip.Exception, pytest.exit.Exception, KeyboardInterrupt))


def _read_marker(marker: pytest.Mark) -> Callable[[Finding], bool]:
    """Return a function that returns whether a marker accepts a finding."""
    from autogradviz.causes.choose_findings_among_facts import OWN_SLUGS
    from autogradviz.diagnose.rule import all_rules

    options: dict[str, Any] = dict(marker.kwargs)
    allowed, hints = options.pop("allow", ()), options.pop("hints", False)
    allowed = {allowed} if isinstance(allowed, str) else set(allowed)
    known = {slug for rule in all_rules() for slug in rule.slugs} | {*OWN_SLUGS}
    if marker.args or options:
        pytest.fail(f"{MARKER} takes allow= and hints= only", pytrace=False)
    if not allowed <= known:
        from difflib import get_close_matches

        unknown = sorted(allowed - known)
        near = get_close_matches(unknown[0], known, 1)
        meant = f"; did you mean {near[0]!r}?" if near else ""
        names = ", ".join(map(repr, unknown))
        pytest.fail(f"{MARKER}: autogradviz has no finding {names}{meant}", pytrace=False)
    return lambda each: bool(
        each.slug in allowed or each.allowed or (each.confidence == "hint" and not hints)
    )


def _report(item: pytest.Item, trace: Trace, folder: Path, *, has_note: bool) -> None:
    """Add the findings to the report of a test, and save its trace."""
    import sys

    from autogradviz.recording.record_between_callbacks import describe_saved
    from autogradviz.render.terminal_text import as_text, render_findings

    found = trace.diagnose()
    # A note on the exception shows the first one, from Python 3.11 on.
    shown = found[1:] if has_note and sys.version_info >= (3, 11) else found
    stem = re.sub(r"[^\w.-]+", "-", item.nodeid).strip("-")[-150:]
    line = describe_saved(trace, folder, stem)
    text = "".join(f"{as_text(render_findings([each]))}\n" for each in shown)
    item.add_report_section("call", "autogradviz", f"{text}{line}")
    # Set here and not in a report hook, so that JUnit XML has it.
    item.user_properties.append(("autogradviz", "; ".join(each.slug for each in found) or "none"))
