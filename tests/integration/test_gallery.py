"""The stored results of the gallery; ``make gallery`` records them again."""

from __future__ import annotations

import json
import subprocess

import pytest

pytest.importorskip("numpy")

from tests.zoo import gallery
from tests.zoo.program import Program, run
from tests.zoo.programs import EXPLAINED, PROGRAMS

ROWS = json.loads(gallery.STORED.read_text(encoding="utf-8"))
RECORDED = {
    "parameters": int, "nodes": int, "saved": int, "at_peak": int, "peak_by_kind": dict,
    "sentence": str, "findings": list, "audit": int, "cost": (float, type(None)),
}  # fmt: skip
OF_PROGRAMS = {
    "repository": str, "commit": str, "license": str, "script": str, "changed": list, "failed": str,
}  # fmt: skip


@pytest.mark.one_in(5, reason="reads each row", in_ci=1)
@pytest.mark.parametrize("name", ROWS)
def test_a_row_has_what_the_page_shows(name):
    row = ROWS[name]
    schema = dict(OF_PROGRAMS) if name in PROGRAMS else {}
    schema |= {"parameters": int} if row.get("failed") else RECORDED
    if name in PROGRAMS and not row["failed"]:
        schema |= {"steps": int}
    assert row.keys() == schema.keys()
    assert {key: value for key, value in row.items() if not isinstance(value, schema[key])} == {}
    assert all(len(each) == 3 for each in row.get("findings", ()))


def test_all_models_and_programs_have_a_row():
    assert ROWS.keys() == gallery.MODELS.keys() | PROGRAMS.keys()
    for name, program in PROGRAMS.items():
        stored = {key: ROWS[name][key] for key in ("repository", "commit", "license", "script")}
        assert stored == {key: getattr(program, key) for key in stored}


def test_a_recording_changed_no_program():
    assert {name: ROWS[name]["changed"] for name in PROGRAMS if ROWS[name]["changed"]} == {}


def test_findings_of_programs_are_hints_and_are_explained():
    found = {name: ROWS[name].get("findings", ()) for name in PROGRAMS}
    assert {name for name, each in found.items() if any(level != "hint" for level, *_ in each)} == (
        set()
    )
    assert EXPLAINED.keys() == {name for name, each in found.items() if each}


def test_the_page_shows_the_stored_results():
    assert gallery.PAGE.read_text(encoding="utf-8") == gallery.page(ROWS)


SCRIPT = """
import sys, torch
weight = torch.nn.Parameter(torch.ones(3))
optimizer = torch.optim.SGD([weight], lr=float(sys.argv[1]))
while True:
    optimizer.zero_grad()
    (weight * torch.rand(3)).sum().backward()
    optimizer.step()
"""


@pytest.fixture
def mirror(tmp_path):
    folder = tmp_path / "someone" / "program"
    folder.mkdir(parents=True)
    (folder / "train.py").write_text(SCRIPT, encoding="utf-8")

    def git(*arguments):
        identity = ("-c", "user.name=someone", "-c", "user.email=someone@example.com")
        command = ["git", *identity, "-C", str(folder), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    git("init", "--quiet")
    git("add", "train.py")
    git("commit", "--quiet", "--message", "train")
    return tmp_path, git("rev-parse", "HEAD").strip()


def test_a_program_is_ended_after_its_steps_and_computes_the_same(mirror):
    folder, commit = mirror
    program = Program(
        repository="someone/program", commit=commit, license="MIT", script="train.py",
        arguments=("0.5",), steps=3,
    )  # fmt: skip
    plain = run(folder, program)
    recorded = run(folder, program, {}, lambda trace: len(trace.analysis.graph.nodes))
    assert (plain["failure"], plain["parameters"], len(plain["digests"])) == ("", 3, 4)
    assert recorded["digests"] == plain["digests"]
    assert recorded["kept"] > 0


def test_the_comparison_of_programs_sees_a_difference(mirror):
    folder, commit = mirror
    programs = [
        Program(
            repository="someone/program", commit=commit, license="MIT", script="train.py",
            arguments=(rate,), steps=3,
        )
        for rate in ("0.5", "0.25")
    ]  # fmt: skip
    first, second = (run(folder, each)["digests"] for each in programs)
    assert first != second
