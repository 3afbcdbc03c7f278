"""The harness of ``tests/history``, on a repository that the test makes."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import torch

from tests.history import __main__ as history
from tests.history.case import Case, Run, case_files, load
from tests.history.excerpt import definitions, statement
from tests.history.mirror import AbsentError, label, statements
from tests.history.run_case import digest

MIRROR = os.environ.get("AUTOGRADVIZ_HISTORY_MIRROR")

BUG = """\
import missing_package
import torch

class Gate(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.score = torch.nn.Linear(3, 4)

    def forward(self, x):
        gate = self.score(x).softmax(-1)
        gate.mul_(
            0.5
        )
        return gate
"""
FIX = BUG.replace("gate.mul_(\n", "gate = gate.mul(\n")
CASE = """
import torch
from tests.history.case import Case

CASE = Case(
    repository="owner/gates", fix="{fix}", license="MIT", kind="in-place", what="a write",
    paths=("gates/gate.py",), stubs={{"missing_package": ""}},
)

def build():
    from gates.gate import Gate

    model, x = Gate(), torch.rand(2, 3)

    def step(number):
        loss = (model(x) * torch.arange(4.0)).sum()
        loss.backward()
        return loss

    return model, step

def symptom(bug, fix):
    return "modified by an inplace operation" in bug.error
"""


@pytest.fixture
def gates(tmp_path):
    """A mirror that contains one repository with a bug and its fix, and the file of the case."""
    folder = tmp_path / "mirror/owner+gates/repo"
    (folder / "gates").mkdir(parents=True)

    def git(*arguments):
        command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments]
        return subprocess.run(
            command, cwd=folder, check=True, capture_output=True, text=True
        ).stdout

    git("init", "--quiet")
    for text in (BUG, FIX):
        (folder / "gates/gate.py").write_text(text)
        git("add", ".")
        git("commit", "--quiet", "--message", "gate")
    path = tmp_path / "gate_write.py"
    path.write_text(CASE.format(fix=git("rev-parse", "HEAD").strip()))
    return tmp_path / "mirror", path


def test_the_parent_of_a_fix_is_recorded_and_its_diff_is_the_label(gates):
    mirror, path = gates
    history.warm_up()
    row = history.examine(mirror, path)
    assert row["label"] == {"gates/gate.py": [11, 12, 13]}
    assert row["counts"]
    assert row["fix_error"] == ""
    [finding] = row["recordings"]["default"]["findings"]
    assert finding["culprit"][:2] == ["gates/gate.py", 11]
    assert {name: row[name] for name in history.MEASURES} == {
        "first": True, "audit": True, "silent": False, "wrong": False, "accused": False,
        "changed": False,
    }  # fmt: skip
    assert history.summary([row, {"case": "other", "failed": "absent"}]) == {
        "cases": 1, "repositories": 1, "first": 1, "audit": 1, "silent": 0, "wrong": 0,
        "accused": 0, "changed": 0, "left out": ["other"],
    }  # fmt: skip


def test_a_case_whose_symptom_does_not_show_does_not_count(gates):
    mirror, path = gates
    path.write_text(path.read_text() + "\ndef symptom(bug, fix):\n    return bug.has_nan()\n")
    history.warm_up()
    assert not history.examine(mirror, path)["counts"]


def test_an_absent_repository_is_reported(gates):
    mirror, _ = gates
    case = Case(repository="no/such", fix="0", license="", kind="", what="", paths=("a.py",))
    with pytest.raises(AbsentError, match="no/such is not in"):
        label(mirror, case)


def test_a_line_stands_for_its_statement():
    source = "def f(\n    a,\n):\n    b = (\n        a\n    )\n    return b\n"
    assert statements(source, {5}) == {4, 5, 6}
    assert statements(source, {2}) == {1, 2, 3}


def test_a_run_is_compared_bit_for_bit():
    nan = torch.tensor(float("nan"))
    first, second, third = (
        Run(digests=[[("loss", digest(v))]]) for v in (nan, nan + 0, nan * 0 + 1)
    )
    assert first.same(second)
    assert not first.same(Run(digests=[[("loss", digest(torch.tensor(1.0)))]]))
    assert not first.same(Run(error="RuntimeError: no", digests=third.digests))


def test_parts_of_a_file_are_executed_with_their_lines(tmp_path, monkeypatch):
    (tmp_path / "script.py").write_text(
        "import absent_package\nimport math\nSIZE = 3\n\ndef area(r):\n    return math.pi * r\n\n"
        "if __name__ == '__main__':\n    for n in range(SIZE):\n        total += area(n)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    names = definitions("script.py", ["SIZE", "area"], {})
    assert names["area"].__code__.co_firstlineno == 5
    names["total"] = 0.0
    statement("script.py", "for n in", names)
    assert names["total"] == pytest.approx(3 * names["math"].pi)


@pytest.mark.parametrize("path", case_files(), ids=lambda path: path.stem)
def test_each_case_describes_itself(path):
    module = load(path)
    assert module.CASE.repository.count("/") == 1
    assert module.CASE.license
    assert module.CASE.what
    assert callable(module.build)
    assert callable(module.symptom)


def test_no_repository_has_more_than_six_cases():
    repositories = [load(path).CASE.repository for path in case_files()]
    assert all(repositories.count(name) <= 6 for name in repositories)


@pytest.mark.parametrize("path", case_files() if MIRROR else [], ids=lambda path: path.stem)
def test_a_case_counts_and_its_fix_is_not_accused(path):
    history.warm_up()
    row = history.examine(Path(MIRROR), path)
    assert (row["counts"], row["accused"], row["changed"]) == (True, False, False)
