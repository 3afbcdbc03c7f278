"""Findings of runs: the examples of their pages on two processes."""

import sys
from pathlib import Path

import pytest
from ranks import run_ranks

import autogradviz
from autogradviz.run_finding_pages import RUN_PAGES

DOCS = Path(__file__).parents[2] / "docs"
sys.path.insert(0, str(DOCS))
from run_examples import DURATION, changed_directory, run_finding_text  # noqa: E402 - in docs/
from run_rank_examples import prepare  # noqa: E402

STORED = DOCS / "pictures" / "findings"


@pytest.fixture(scope="module")
def examples(tmp_path_factory):
    """Return the folder of each page's example, which two processes ran one after the other."""
    folder = tmp_path_factory.mktemp("examples")
    # Without a build of the native engine, all machines record the same events.
    ended = run_ranks(*prepare(folder), env={"AUTOGRADVIZ_CACHE": str(folder / "cache")})
    assert [rank.code for rank in ended] == [0, 0], "\n".join(rank.err for rank in ended)
    return {page.slug: folder / page.slug / "project" for page in RUN_PAGES}


@pytest.mark.parametrize("page", RUN_PAGES, ids=lambda page: page.slug)
def test_page_example_gives_its_finding_first(examples, page):
    found = autogradviz.load(examples[page.slug] / "run").diagnose()[0].finding
    assert found.slug == page.slug
    if "# <-- named" in page.example:
        assert found.culprit.text.endswith("# <-- named")
    else:
        assert found.culprit is None


@pytest.mark.parametrize("page", RUN_PAGES, ids=lambda page: page.slug)
def test_page_shows_the_finding_of_its_example(examples, page):
    with changed_directory(examples[page.slug]):
        text = run_finding_text(autogradviz.load("run/"))
    stored = (STORED / f"{page.slug}.txt").read_text(encoding="utf-8")
    assert DURATION.sub("0 s", text) == DURATION.sub("0 s", stored)
