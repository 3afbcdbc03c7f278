"""Findings of runs: the examples of their pages, and their corrected twins, on two processes."""

import sys
from pathlib import Path

import pytest
from ranks import run_ranks

import autogradviz
from autogradviz.explanations.read_pages import pages

DOCS = Path(__file__).parents[2] / "docs"
sys.path.insert(0, str(DOCS))
import run_rank_examples  # noqa: E402 - in docs/
from compare_outputs import is_same_output  # noqa: E402
from run_examples import changed_directory, run_finding_text  # noqa: E402

STORED = DOCS / "pictures" / "findings"
CORRECTIONS = {
    "ddp-unused-parameter": ("if x.sum() > 0:", "if x.sum() >= 0:"),
    "recompute-diverged-on-rank": ("if self.calls > 2:", "if self.calls > 9:"),
    "pipeline-stages-uneven": ("else 12", "else 1"),
}
"""A part of each example, and what corrects it in its place; test_runs.py has the other twins."""
INSIDE = (
    ("net = DistributedDataParallel(Net())\n", ""),
    (
        'record(net, path="run/"):\n',
        'record(path="run/"):\n    net = DistributedDataParallel(Net())\n',
    ),
)
ALLOWED = ("Parallel(Net())", "Parallel(Net(), find_unused_parameters=True)")


pytestmark = pytest.mark.slow(reason="13 programs of two processes")


@pytest.fixture(scope="module")
def examples(tmp_path_factory):
    """Return the folder of each program, which two processes ran one after the other."""
    folder = tmp_path_factory.mktemp("examples")
    programs = run_rank_examples.examples()
    for slug, (wrong, right) in CORRECTIONS.items():
        assert programs[slug].count(wrong) == 1
        programs[f"{slug}-corrected"] = programs[slug].replace(wrong, right)
    programs["unused-inside"] = programs["ddp-unused-parameter"]
    for outside, inside in INSIDE:
        assert programs["unused-inside"].count(outside) == 1
        programs["unused-inside"] = programs["unused-inside"].replace(outside, inside)
    programs["unused-allowed"] = programs["ddp-unused-parameter"].replace(*ALLOWED)
    arguments = run_rank_examples.prepare(folder, programs)
    # Without a build of the native engine, all machines record the same events.
    ended = run_ranks(*arguments, env={"AUTOGRADVIZ_CACHE": str(folder / "cache")})
    assert [rank.code for rank in ended] == [0, 0], "\n".join(rank.err for rank in ended)
    return {name: folder / name / "project" for name in programs}


@pytest.mark.parametrize("page", pages("runs"), ids=lambda page: page.slug)
def test_page_example_gives_its_finding_first(examples, page):
    found = autogradviz.load(examples[page.slug] / "run").diagnose()[0].finding
    assert found.slug == page.slug
    if "# <-- named" in page.example:
        assert found.culprit.text.endswith("# <-- named")
    else:
        assert found.culprit is None


@pytest.mark.parametrize("page", pages("runs"), ids=lambda page: page.slug)
def test_page_shows_the_finding_of_its_example(examples, page):
    with changed_directory(examples[page.slug]):
        text = run_finding_text(autogradviz.load("run/"))
    stored = (STORED / f"{page.slug}.txt").read_text(encoding="utf-8")
    if page.slug == "pipeline-stages-uneven":  # a ratio of times
        text, stored = text.partition("times")[2], stored.partition("times")[2]
    assert is_same_output(stored, text), text


@pytest.mark.parametrize("slug", CORRECTIONS)
def test_corrected_example_has_no_finding_of_a_run(examples, slug):
    found = autogradviz.load(examples[f"{slug}-corrected"] / "run").diagnose()
    slugs = {each.finding.slug for each in found if each.finding.confidence != "hint"}
    # The counter of the region is still counted twice; that is a finding of each recording.
    assert slugs <= {"checkpoint-effect-repeated"}


def test_unused_parameter_that_ddp_expects_is_a_hint(examples):
    (found,) = autogradviz.load(examples["unused-allowed"] / "run").diagnose()
    assert (found.finding.slug, found.finding.confidence) == ("ddp-unused-parameter", "hint")
    assert found.finding.culprit.text.endswith("# <-- named")


def test_initialization_is_no_use_of_a_parameter_and_the_exception_is_no_second_finding(examples):
    found = autogradviz.load(examples["unused-inside"] / "run").diagnose()
    by_slug = {each.finding.slug: each.finding for each in found}
    assert by_slug["ddp-unused-parameter"].culprit.text.endswith("# <-- named")
    assert "collective-missing" not in by_slug
