"""Bugs from histories of public repositories, as small programs of our own."""

from pathlib import Path

import pytest
import torch

import autogradviz
from tests.history.case import load

FILES = sorted((Path(__file__).parent.parent / "history/reductions").glob("*.py"))


def culprit(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    [line] = [n for n, text in enumerate(lines, 1) if text.endswith("# CULPRIT")]
    return line


def recorded(program):
    with autogradviz.record() as trace:
        values = program()
    return values, trace


def same(first, second):
    return len(first) == len(second) and all(map(torch.equal, first, second))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_bug_shows_and_recording_changes_nothing(path):
    module = load(path)
    bug, correct = module.run(), module.reference()
    assert not same(bug, correct)
    assert same(recorded(module.run)[0], bug)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_correct_program_is_not_accused(path):
    _, trace = recorded(load(path).reference)
    assert [f.title for f in trace.diagnose() if f.confidence != "hint"] == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_first_finding_names_the_line(path, request):
    module = load(path)
    if not module.FOUND:
        request.applymarker(pytest.mark.xfail(reason="not found yet", strict=True))
    _, trace = recorded(module.run)
    first = trace.diagnose()[0]
    assert (first.culprit.filename, first.culprit.lineno) == (str(path), culprit(path))
