"""Every finding and error has a page, and the example of each page reproduces it."""

import ast
import re
from pathlib import Path

import pytest
import torch

import autogradviz
from autogradviz import errors
from autogradviz.explanations.read_pages import overview, pages
from autogradviz.support.source_lines_and_libraries import parse

INDEX = (Path(__file__).parents[2] / "docs" / "README.md").read_text(encoding="utf-8")
MESSAGES = re.findall(
    r"^\| (`+) ?(.*?) ?\1 \| \[([\w-]+)\]\(findings/\3.md\) \|$", INDEX, re.MULTILINE
)
PACKAGE = Path(autogradviz.__file__).parent
PAGES = {page.slug: page for page in pages()}
ON_THE_CPU = [
    slug for slug, page in PAGES.items() if page.processes == 1 and not page.on_accelerator
]
SLUG = re.compile(r"[a-z]+(-[a-z]+)+")
NO_SLUGS = {"memory-efficient", "straight-through"}  # other hyphenated words


def given_slugs():
    """Return the slugs in the code of findings, and the slugs of errors."""
    found = set()
    folders = (PACKAGE / "diagnose", PACKAGE / "causes", PACKAGE / "distributed_runs")
    for path in sorted(path for folder in folders for path in folder.rglob("*.py")):
        for node in ast.walk(parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found |= {node.value} & {node.value} if SLUG.fullmatch(node.value) else set()
    own = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    return (found - NO_SLUGS) | {kind.slug for kind in own if hasattr(kind, "slug")}


def test_every_slug_has_a_page():
    assert given_slugs() - PAGES.keys() == set()


def test_every_page_has_a_slug_in_use():
    assert PAGES.keys() - given_slugs() == set()


def run(page, folder):
    """Run an example as a file; return its trace and its exception."""
    path = folder / "example.py"
    path.write_text(page.example, encoding="utf-8")
    names = {"__name__": "example"}
    raised = None
    torch.manual_seed(0)
    try:
        exec(compile(page.example, str(path), "exec"), names)
    except Exception as error:
        raised = error
    finally:
        torch.set_default_dtype(torch.float32)
    return names.get("trace"), raised


@pytest.mark.one_in(6, reason="runs each example", in_ci=2)
@pytest.mark.parametrize("slug", ON_THE_CPU)
def test_page_example_gives_its_finding_or_error(slug, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    trace, raised = run(PAGES[slug], tmp_path)
    if isinstance(raised, errors.AutogradvizError):
        assert raised.slug == slug
        assert "# <-- named" not in PAGES[slug].example
        return
    first = trace.diagnose()[0]
    assert first.slug == slug
    assert first.culprit.text.endswith("# <-- named")
    if raised is not None:
        assert first.title in raised.__notes__[0]


@pytest.mark.parametrize("slug", PAGES)
def test_page_is_short_and_narrow(slug):
    lines = str(autogradviz.explain(slug)).splitlines()
    assert lines[0] == f"{PAGES[slug].title}  [{slug}]"
    assert len(lines) <= 60
    assert max(map(len, lines)) <= 100


def test_unknown_name_raises_with_suggestions():
    with pytest.raises(errors.UnknownSlugError, match="did you mean graph-lost"):
        autogradviz.explain("graph-list")


def test_overview_has_a_line_for_each_page():
    assert [line.split()[0] for line in overview()] == list(PAGES)


@pytest.mark.one_in(3, reason="runs each example", in_ci=1)
@pytest.mark.parametrize(("message", "slug"), [row[1:] for row in MESSAGES])
def test_message_in_the_index_is_that_of_the_example_of_its_finding(
    message, slug, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert len(MESSAGES) == 10
    _, raised = run(PAGES[slug], tmp_path)
    assert message in str(raised)
