"""The examples of the documentation run, and print what the pages show."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from interpreters import run_forked
from needs_documented_torch import needs_documented_torch

DOCS = Path(__file__).parents[2] / "docs"
sys.path.insert(0, str(DOCS))
from compare_outputs import is_same_output  # noqa: E402 - found in docs/
from run_examples import BLOCK, PAGES  # noqa: E402

from autogradviz.explanations.read_pages import pages  # noqa: E402

STORED = DOCS / "pictures" / "findings"


def run_examples(*arguments):
    """Run the script that ``make docs-examples`` runs, in a process of its own."""
    environment = os.environ | {"PYTHONPATH": str(DOCS.parent)}
    return run_forked(DOCS / "run_examples.py", *arguments, env=environment)


@pytest.mark.one_in(24, reason="runs each example", in_ci=2)
@needs_documented_torch
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_examples_of_a_page_print_what_it_shows(page):
    assert BLOCK.search(page.read_text(encoding="utf-8"))
    result = run_examples(str(page))
    assert result.returncode == 0, result.stdout + result.stderr


def test_an_example_that_prints_something_else_fails(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```python\nprint(1)\n```\n\n```text\n2\n```\n", encoding="utf-8")
    assert "DIFFERS" in run_examples(str(page)).stdout


def test_an_example_that_raises_without_showing_it_fails(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```python\n1 / 0\n```\n", encoding="utf-8")
    assert run_examples(str(page)).returncode == 1


@pytest.mark.slow(reason="test_explain.py runs the same examples")
@needs_documented_torch
def test_pages_of_findings_show_the_finding_of_their_example():
    result = run_examples("--findings")
    assert result.returncode == 0, result.stderr
    stored = {path.stem: path.read_text(encoding="utf-8") for path in STORED.glob("*.txt")}
    of_runs = {page.slug for page in pages("runs")}  # test_run_findings.py runs these
    assert json.loads(result.stdout).keys() & of_runs == set()
    found = json.loads(result.stdout)
    assert found.keys() == stored.keys() - of_runs
    assert [slug for slug in found if not is_same_output(stored[slug], found[slug])] == []


@pytest.mark.parametrize(
    ("expected", "output", "same"),
    [
        ("took 3.1 ms", "took 40 µs", True),
        ("norm 3.954", "norm 3.9541", True),
        ("norm 3.954", "norm 4.021", False),
        ("a 00112233aabbccdd b 00112233aabbccdd", "a 99112233aabbccdd b 99112233aabbccdd", True),
        ("a 00112233aabbccdd b 00112233aabbccdd", "a 99112233aabbccdd b 88112233aabbccdd", False),
        ("3 nodes, 1.5 kB", "4 nodes, 1.5 kB", False),
        ("which has 25 GB in all", "which has 8.1 GB in all", True),
        ("In use were 3 kB gradients.", "In use were 9 kB other tensors.", True),
        ("which has 25 GB", "which has 8 GB", False),
        ("begin ... end 2.0", "begin 7.5 end 2.0", True),
    ],
)
def test_outputs_may_differ_only_in_what_depends_on_the_machine(expected, output, same):
    assert is_same_output(expected, output) == same


def test_every_finding_with_a_graph_has_its_picture_for_light_and_dark_pages():
    drawn = {path.stem for path in STORED.glob("*.svg")}
    light = {name for name in drawn if not name.endswith("-dark")}
    assert drawn == light | {f"{name}-dark" for name in light}
    assert light <= {page.slug for page in pages("findings")}
    here = [page for page in pages("findings") if not page.on_accelerator]
    assert len(light) >= len(here) - 5  # a lost graph has no picture
