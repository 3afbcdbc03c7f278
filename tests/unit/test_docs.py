"""Referenced tests and files exist, and the README is short."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

import autogradviz
from autogradviz import plugins
from autogradviz.diagnose.evidence.evidence import Evidence
from autogradviz.explanations.read_pages import pages, read_page
from tests.unit.make_log import began, ended, make_log

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "docs")]

import run_examples  # noqa: E402 - found in docs/

PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "assets").glob("*.md")),
]
LINK = re.compile(r"\]\(([^)#\s]+)(?:#([^)\s]*))?\)")
TEST = re.compile(r"`(?:(test_\w+\.py)::)?(test_\w+)`")


def name_of(path):
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_link_targets_exist(page):
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    targets = [target for target, _ in LINK.findall(text)]
    local = [target for target in targets if not re.match(r"[a-z]+:", target)]
    assert [target for target in local if not (page.parent / target).exists()] == []


def test_tests_named_in_mechanisms_exist():
    text = (ROOT / "docs" / "mechanisms.md").read_text(encoding="utf-8")
    file, missing = "", []
    for named, test in TEST.findall(text):
        file = named or file  # a name without a file belongs to the previous file
        source = ROOT / "tests" / "integration" / file
        if f"def {test}(" not in source.read_text(encoding="utf-8"):
            missing.append(f"{file}::{test}")
    assert missing == []
    assert len(TEST.findall(text)) > 50


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_paths_in_the_text_exist(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    named = re.findall(r"`([\w./]+(?:\.py|\.js|\.toml|/))`", text)
    folders = [
        ROOT / name for name in ("autogradviz", "assets", "tests", "docs", "notebooks", "release")
    ]
    paths = [path for folder in folders for path in (folder, *folder.rglob("*"))]
    known = {f"/{path.relative_to(ROOT).as_posix()}{'/' * path.is_dir()}" for path in paths}
    known |= {f"/{path.name}" for path in ROOT.iterdir()}
    # Placeholders, and the files that the first rule begins with.
    named = {name for name in named if "NAME" not in name and "product_in_float64" not in name}
    assert {name for name in named if not any(p.endswith(f"/{name}") for p in known)} == set()


def test_every_page_is_in_the_index():
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    listed = {target for target, _ in LINK.findall(index)}
    docs = ROOT / "docs"
    paths = [*docs.glob("*.md"), *docs.glob("guides/*.md")]
    pages = {path.relative_to(docs).as_posix() for path in paths} - {"README.md", "index.md"}
    assert pages - listed == set()


PUBLIC_NAMES = {name for name in autogradviz.__all__ if not name.startswith("_")}


def test_every_public_name_is_documented():
    text = (ROOT / "docs" / "python-api.md").read_text(encoding="utf-8")
    assert {name for name in PUBLIC_NAMES if name not in re.findall(r"\w+", text)} == set()


def test_every_public_name_is_in_the_api_reference():
    text = "".join(page.read_text("utf-8") for page in (ROOT / "docs" / "api").glob("*.md"))
    listed = re.findall(r"^\.\. auto\w+:: (\w+)(?![\w.])", text, re.MULTILINE)
    names = PUBLIC_NAMES | {*plugins.__all__}
    assert sorted(listed) == sorted(names - {"events"})  # events.md has the events


def test_every_member_of_a_trace_is_on_its_page_and_at_a_glance():
    members = {name for name in vars(autogradviz.Trace) if not name.startswith("_")}
    page = (ROOT / "docs" / "api" / "trace.md").read_text("utf-8")
    listed = re.findall(r"^\.\. auto\w+:: Trace\.(\w+)", page, re.MULTILINE)
    assert sorted(listed) == sorted(members)
    glance = (ROOT / "docs" / "python-api.md").read_text("utf-8")
    assert members <= set(re.findall(r"`(\w+)[(`]", glance))


def test_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150


@pytest.fixture
def first_rule(monkeypatch):
    """Return the names of the rule and of the test in CONTRIBUTING.md, and the page."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    [page] = re.findall(r"^````markdown\n(.*?)^````", text, re.DOTALL | re.MULTILINE)
    text = text.replace(page, "")
    rule, test = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    module = ModuleType("autogradviz.diagnose.rules.product_in_float64")
    monkeypatch.setitem(sys.modules, module.__name__, module)  # what the test imports
    exec(rule, vars(module))
    names = {}
    exec(test, names)
    return vars(module), names["test_a_product_in_float64_is_found"], page


def test_rule_in_contributing_passes_its_test(first_rule):
    names, test, _ = first_rule
    test()
    names["Draft"] = None  # the test fails if the rule does
    with pytest.raises(TypeError):
        test()


def test_page_in_contributing_is_an_example_of_its_rule(first_rule, tmp_path):
    pytest.importorskip("torch")
    names, _, text = first_rule
    (tmp_path / "product-in-float64.md").write_text(text, encoding="utf-8")
    page = read_page(tmp_path / "product-in-float64.md")
    trace = run_examples.run_finding(page, tmp_path)
    [finding] = names["product_in_float64"].findings(Evidence(trace.analysis))
    assert (finding.title, finding.slug) == (page.title, page.slug)
    assert finding.culprit.text.endswith("# <-- named")


def test_example_without_a_finding_is_named():
    trace = autogradviz.Trace(make_log(began(), ended()))
    with pytest.raises(LookupError, match="the example has no finding"):
        run_examples.finding_text(trace)


@pytest.mark.parametrize(
    ("query", "slug"), [("memory leak", "tensors-kept"), ("zero_grad", "gradients-not-cleared")]
)
def test_title_of_a_finding_has_the_words_that_people_search_for(query, slug):
    [page] = [page for page in pages("findings") if page.slug == slug]
    assert query in page.title


def test_the_rounds_of_unseen_bugs_add_up_to_the_figure_of_the_readme():
    page = (ROOT / "docs" / "confidence.md").read_text("utf-8").partition("## Held-out bugs")[2]
    table = page.partition("## Bugs from")[0]
    rows = re.findall(r"^\| (.+) \| (\d+) \| (\d+) \|$", table, re.MULTILINE)
    *rounds, (_, bugs, right) = rows
    assert len(rounds) == 15
    assert (int(bugs), int(right)) == tuple(sum(int(row[at]) for row in rounds) for at in (1, 2))
    readme = " ".join((ROOT / "README.md").read_text("utf-8").split())
    share = round(100 * int(right) / int(bugs))
    named = f"The first finding named the right line for {right} of {bugs} bugs"
    assert f"{named} that it had not seen ({share} %)" in readme
    assert "the fifteen rounds" in readme


def test_each_level_of_confidence_is_explained_with_the_figures_of_its_calibration():
    table = (ROOT / "assets" / "calibration.md").read_text("utf-8")
    correct = re.search(r"findings on (\d+) correct programs", table)[1]
    page = " ".join((ROOT / "docs" / "confidence.md").read_text("utf-8").split())
    first = page.partition("[bugs of the tests]")[0]
    assert f"the bugs of the tests named the culprit, and {correct} correct programs" in first
    rows = re.findall(r"^\| (\w+) \| (\d+) \| (\d+) \| .* \| (\d+) \|$", table, re.MULTILINE)
    assert [level for level, *_ in rows] == ["certain", "likely", "hint"]
    for level, found, right, on_correct in rows:
        assert found == right  # else "All" is wrong
        sentence = first.partition(f"* `{level}`:")[2].partition(" * `")[0]
        assert re.search(rf"All {found}\b.* named the culprit, .*had {on_correct}\b", sentence)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="exceptions have no notes")
def test_the_error_in_the_readme_is_that_of_the_code_above_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "README.md").read_text("utf-8").partition("## The first minute")[2]
    first, second, printed = re.findall(r"```(?:python|text)\n(.*?)```", text, re.DOTALL)[:3]
    script = tmp_path / "train.py"
    script.write_text(f"{first}\n{second}", encoding="utf-8")
    with pytest.raises(RuntimeError) as raised:
        exec(compile(script.read_text("utf-8"), str(script), "exec"), {})
    message, _, note = printed.partition("autogradviz: ")
    words = " ".join(str(raised.value).split())
    assert words.startswith(" ".join(message.split()).removeprefix("RuntimeError: ").rstrip(" ."))
    assert raised.value.__notes__[0].startswith("autogradviz: " + note.rstrip(" .\n"))
