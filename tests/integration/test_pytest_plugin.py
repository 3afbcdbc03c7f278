"""The pytest plugin, in a pytest process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import autogradviz
from autogradviz.integrations.pytest_plugin import pytest_configure

pytestmark = pytest.mark.one_in(3, reason="runs pytest", in_ci=1)

TESTS = """
import pytest
import torch


def write_saved():
    x = torch.ones(2, requires_grad=True)
    y = x.exp()
    loss = y.sum()
    y.data.mul_(2)
    loss.backward()
    return x


def test_raises():
    y = torch.ones(2, requires_grad=True).exp()
    loss = y.sum()
    y.mul_(2)
    loss.backward()


def test_wrong_gradient():
    assert write_saved().grad.sum() < 6


@pytest.mark.autogradviz_no_findings
def test_marked():
    write_saved()


@pytest.mark.autogradviz_no_findings(allow="silent-write")
def test_allowed():
    write_saved()


@pytest.mark.autogradviz_no_findings
def test_marked_and_records_itself(autogradviz_record):
    write_saved()
    with autogradviz_record() as trace:
        torch.ones(2, requires_grad=True).exp().sum().backward()
    assert trace.diagnose() == []


@pytest.mark.autogradviz_no_findings(allow="silent-wriet")
def test_unknown_name():
    pass


@pytest.mark.autogradviz_no_findings("silent-write")
def test_positional():
    pass


def test_skipped():
    pytest.skip("not here")


@pytest.mark.xfail(raises=RuntimeError, strict=True)
def test_expected():
    test_raises()


def test_passes():
    assert torch.ones(2).sum() == 2


model = torch.nn.Linear(2, 1)


def test_checked(autogradviz_check):
    step = lambda: model(torch.ones(3, 2)).sum()
    assert autogradviz_check(step, model, relations=["certificate"]).ok


def test_checked_with_silent_write(autogradviz_check):
    def step():
        y = model(torch.ones(3, 2)).exp()
        loss = y.sum()
        y.data.mul_(2)
        return loss

    autogradviz_check(step, model, relations=["certificate"])
"""


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    """Run pytest; return its folder and its output."""
    folder = tmp_path_factory.mktemp("session")
    (folder / "test_it.py").write_text(TESTS, encoding="utf-8")
    command = [
        *(sys.executable, "-m", "pytest", "-p", "autogradviz.integrations.pytest_plugin"),
        *("--autogradviz=out", "--junitxml=junit.xml", "--strict-markers", "--color=no", "-rA"),
    ]
    environment = {
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTEST_ADDOPTS": "",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    done = subprocess.run(
        command,
        cwd=folder,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return folder, done.stdout


def test_outcomes_are_those_of_the_tests_and_markers(session):
    summary = session[1].partition("short test summary info")[2]
    found = re.findall(r"(\w+) test_it.py::(\w+)", summary)
    assert {name: outcome for outcome, name in found} == {
        "test_raises": "FAILED",
        "test_wrong_gradient": "FAILED",
        "test_marked": "FAILED",
        "test_allowed": "PASSED",
        "test_marked_and_records_itself": "FAILED",
        "test_unknown_name": "FAILED",
        "test_positional": "FAILED",
        "test_expected": "XFAIL",
        "test_passes": "PASSED",
        "test_checked": "PASSED",
        "test_checked_with_silent_write": "FAILED",
    }


def test_failures_name_the_line(session):
    output = session[1]
    parts = re.split(
        r"^_{3,} (\w+) _{3,}$", output.partition("= FAILURES =")[2], flags=re.MULTILINE
    )
    reports = dict(zip(parts[1::2], parts[2::2], strict=True))
    assert re.search(r"^E +y\.mul_\(2\)$", reports["test_raises"], re.MULTILINE)
    assert reports["test_raises"].count("y was written at line") == 1
    assert "Captured autogradviz call" in reports["test_wrong_gradient"]
    assert "past the version check  [silent-write, likely]" in reports["test_wrong_gradient"]
    assert "autogradviz found: silent-write (likely)" in reports["test_marked"]
    assert "autogradviz found: silent-write" in reports["test_marked_and_records_itself"]
    assert "FAIL certificate" in reports["test_checked_with_silent_write"]
    message = "autogradviz has no finding 'silent-wriet'; did you mean 'silent-write'?"
    assert message in reports["test_unknown_name"]
    assert "takes allow= and hints= only" in reports["test_positional"]


@pytest.mark.parametrize("given", ["tests/test_it.py", "tests/test_it.py::test_a", "tests"])
def test_tests_as_folder_are_refused(tmp_path, given):
    """``pytest --autogradviz tests`` would record all tests, with traces in that folder."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_it.py").write_text("")
    config = SimpleNamespace(getoption=lambda *_: given, rootpath=tmp_path)
    with pytest.raises(pytest.UsageError, match=f"folder for traces, and {given} has tests"):
        pytest_configure(config)


def test_traces_lie_in_the_folder_and_junit_names_the_findings(session):
    folder, output = session
    names = sorted(path.stem for path in (folder / "out").glob("*.agv"))
    assert names == [
        f"test_it.py-{name}"
        for name in (
            "test_checked_with_silent_write",
            "test_marked",
            "test_marked_and_records_itself",
            "test_raises",
            "test_wrong_gradient",
        )
    ]
    assert "open it with: autogradviz html out/test_it.py-test_raises.agv" in output
    trace = autogradviz.load(folder / "out" / "test_it.py-test_marked.agv")
    assert [each.slug for each in trace.diagnose()] == ["silent-write"]
    junit = (folder / "junit.xml").read_text(encoding="utf-8")
    assert '<property name="autogradviz" value="silent-write"' in junit


GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "integrations.md"


@pytest.mark.parametrize(
    ("heading", "script"), [("A plain script", "train.py"), ("pytest", "test_model.py")]
)
def test_lines_in_the_guide_are_those_of_a_run(tmp_path, heading, script):
    """The programs of the guide print the lines that it shows below them."""
    section = GUIDE.read_text("utf-8").partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    program = re.search(r"```py(?:thon)?\n(.*?)```", section, re.DOTALL)[1]
    (tmp_path / script).write_text(program, encoding="utf-8")
    arguments = [script] if script == "train.py" else ["-m", "pytest", script, "--autogradviz"]
    ended = subprocess.run(
        [sys.executable, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    printed = ended.stdout + ended.stderr
    shown = re.findall(
        r"^    (?:E   )?(.*written at line.*|.*trace written to .*)$", section, re.MULTILINE
    )
    assert len(shown) == 2
    for line in shown:
        assert line.removesuffix(" ...") in printed
