"""Plug-ins: rules, pages and formats of other packages, and the isolation of those that fail."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
import warnings

import pytest
from make_log import make_log, op

import autogradviz
from autogradviz import entry_points
from autogradviz.analysis import Analysis
from autogradviz.diagnose import diagnose, rule
from autogradviz.errors import AutogradvizError, AutogradvizWarning
from autogradviz.explanations import read_pages
from autogradviz.export import FORMATS, all_formats, formats
from autogradviz.plugins import Draft, NoError

CACHES = (
    *(entry_points.plugins, rule.all_rules, formats.all_formats),
    read_pages._pages_of_plugins,
)
NUMBERS = itertools.count()

IMPORTS = "from autogradviz.plugins import *\n"
DRAFT = "Draft(title='found', culprit=None, victim=None, explanation=(), fix='', {})"


def a_rule(slug="own-slug", options="", body=None, parameters="evidence"):
    """Return the source of a rule that finds something."""
    body = body or f"yield {DRAFT.format('')}"
    return f"@rule({slug!r}, when=Always(){options})\ndef found({parameters}):\n    {body}\n"


def a_format(**changes):
    """Return the source of a format."""
    values = {"name": "'own'", "description": "'d'", "suffixes": "('.own',)", "signature": "b'own'"}
    values |= {"writer": "__name__ + ':write'"} | changes
    arguments = ", ".join(f"{name}={value}" for name, value in values.items())
    return f"FORMAT = Format({arguments})\ndef write(analysis, path): path.write_text('own')\n"


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Return a function that installs a package with a module and an entry point that names it."""
    folder = tmp_path / "site"
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("AUTOGRADVIZ_PLUGINS", "1")
    monkeypatch.chdir(tmp_path)

    def clear():
        for function in CACHES:
            function.cache_clear()

    def install(source, group="autogradviz.rules", value="{}", package=None):
        name = f"plugin_{next(NUMBERS)}"
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text(IMPORTS + source)
        info = folder / f"{package or name}-1.0.dist-info"
        info.mkdir()
        entry_point = f"[{group}]\nnamed = {value.format(name)}\n"
        (info / "entry_points.txt").write_text(entry_point)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package or name}\n")
        clear()
        return folder / name

    yield install
    clear()


def warned(action):
    """Return the messages of our warnings."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        action()
    return [str(each.message) for each in found if each.category is AutogradvizWarning]


OK = Analysis(make_log(op("exp")))


def slugs():
    return [finding.slug for finding in diagnose(OK)]


def test_rule_of_a_package_finds_something(install):
    install(a_rule())
    assert slugs() == ["own-slug"]
    found = rule.all_rules()
    assert [each for each in found if not each.origin] == [*rule.own_rules()]


def test_rule_of_a_package_has_its_place(install):
    install(a_rule(options=", group='waste', before='graph-kept'"))
    order = [each.name for each in rule.all_rules()]
    assert order.index("graph_kept") == order.index("found") + 1


def test_variable_turns_plugins_off(install, monkeypatch):
    install("1 / 0")
    monkeypatch.setenv("AUTOGRADVIZ_PLUGINS", "0")
    assert warned(rule.all_rules) == []


def test_plugins_are_loaded_once(install):
    install("1 / 0")
    assert len(warned(rule.all_rules)) == 1
    assert warned(rule.all_rules) == []


REJECTED_RULES = {
    "cannot be imported": ("import no_such_module", "ModuleNotFoundError: No module named"),
    "raises on import": ("1 / 0", "ZeroDivisionError: division by zero"),
    "exits on import": ("raise SystemExit('end')", "SystemExit: end"),
    "is no Python": ("def", "SyntaxError: invalid syntax"),
    "has no rule": ("x = 1", r"ValueError: the module plugin_\d+ has no rule"),
    "has a slug of a rule": (a_rule("graph-lost"), "the slug 'graph-lost' of found is taken"),
    "has a slug of an error": (a_rule("not-a-trace"), "the slug 'not-a-trace' of found is taken"),
    "has a malformed slug": (a_rule("Slug"), "the slug 'Slug' of found is not words joined by"),
    "has a slug that is no text": (a_rule(3), "TypeError: "),
    "takes no argument": (a_rule(parameters=""), "TypeError: too many positional arguments"),
    "takes two arguments": (a_rule(parameters="a, b"), "TypeError: missing a required argument"),
    "has an unknown neighbor": (a_rule(options=", after='a-b'"), "found refers to 'a-b', which"),
    "has an unknown group": (a_rule(options=", group='x'"), "found is in 'x', which is none of"),
    "supersedes no slugs": (a_rule(options=", supersedes=3"), "TypeError: 'int' object is not"),
    "has no condition": ("@rule('a-b')\ndef found(evidence): ...", r"TypeError: rule\(\) missing"),
}


@pytest.mark.parametrize("case", REJECTED_RULES)
def test_rule_that_cannot_be_used_is_named_in_one_warning(case, install):
    source, problem = REJECTED_RULES[case]
    install(source, package="broken")
    install(a_rule("good-slug"), package="good")
    (message,) = warned(rule.all_rules)
    begin = "the plug-in broken (entry point named of autogradviz.rules) was left out: "
    assert message.startswith(begin)
    assert re.search(problem, message)
    assert slugs() == ["good-slug"]


@pytest.mark.parametrize("value", ["{}:found", "{}:missing", "no_such_module", "{}:", "not valid"])
def test_entry_point_that_names_no_module_is_named_in_one_warning(value, install):
    install(a_rule(), value=value, package="broken")
    (message,) = warned(rule.all_rules)
    assert message.startswith("the plug-in broken (entry point named of autogradviz.rules) was")
    assert rule.all_rules() == rule.own_rules()


def test_slug_of_two_packages_belongs_to_the_first_by_name(install):
    install(a_rule(), package="b")
    install(a_rule(), package="a")
    (message,) = warned(rule.all_rules)
    assert message.startswith("the plug-in b (entry point named of autogradviz.rules) was left")
    assert slugs() == ["own-slug"]


FAILING_RULES = {
    "raises": (a_rule(body="1 / 0"), "ZeroDivisionError: division by zero"),
    "exits": (a_rule(body="raise SystemExit(3)"), "SystemExit: 3"),
    "yields no draft": (a_rule(body="yield 3"), "AttributeError: 'int' object has no attribute"),
    "returns nothing": (a_rule(body="return None"), "TypeError: "),
    "has another slug": (
        a_rule(body=f"yield {DRAFT.format('slug=chr(97)')}"),
        "ValueError: found is not declared to yield 'a'",
    ),
    "has an unknown confidence": (
        a_rule(body=f"yield {DRAFT.format('confidence=chr(97)')}"),
        "ValueError: 'a' is none of the confidences",
    ),
    "has a title that is no text": (
        a_rule(body=f"yield {DRAFT.format('').replace(repr('found'), '3')}"),
        "TypeError: title and fix of a draft are texts",
    ),
    "has a culprit without a line": (
        a_rule(body=f"yield {DRAFT.format('').replace('culprit=None', 'culprit=3')}"),
        "AttributeError: ",
    ),
    "has a region that is no number": (
        a_rule(body=f"yield {DRAFT.format('region_id=[]')}"),
        "TypeError: title and fix of a draft are texts, places have lines, a region has a number",
    ),
    "has a condition of another type": (
        a_rule().replace("Always()", "'always'"),
        "AttributeError: 'str' object has no attribute 'holds'",
    ),
}


@pytest.mark.parametrize("case", FAILING_RULES)
def test_rule_that_fails_is_named_in_one_warning_and_others_answer(case, install):
    source, problem = FAILING_RULES[case]
    install(source, package="broken")
    install(a_rule("good-slug"), package="good")
    answers = []
    (message,) = warned(lambda: answers.extend(slugs()))
    assert message.startswith(
        "found of the plug-in broken (entry point named of autogradviz.rules) failed: "
    )
    assert problem in message
    assert answers == ["good-slug"]


# --- packages without usual metadata ------------------------------------------------------------


def test_package_without_metadata_has_the_name_of_its_folder(install, tmp_path):
    install("1 / 0", package="broken")
    (tmp_path / "site" / "broken-1.0.dist-info" / "METADATA").unlink()
    (message,) = warned(rule.all_rules)
    assert message.startswith("the plug-in broken-1.0 (entry point named of autogradviz.rules) was")


@pytest.mark.parametrize(
    "content", [b"[autogradviz.rules]\nno value\n", b"autogradviz.rules = x\n", b"\xff\xfe"]
)
def test_damaged_list_of_entry_points_does_not_affect_other_packages(content, install, tmp_path):
    install("", package="broken")
    install(a_rule("good-slug"), package="good")
    (tmp_path / "site" / "broken-1.0.dist-info" / "entry_points.txt").write_bytes(content)
    assert all("the plug-in broken (entry points of " in each for each in warned(rule.all_rules))
    assert slugs() == ["good-slug"]


# --- pages --------------------------------------------------------------------------------------

PAGE = (
    "# {}\n\nIt means.\n\n## How it happens\n\nSo.\n\n## How to fix it\n\nFix.\n\n"
    "## Example\n\n```python\npass\n```\n"
)


def write_pages(package, **texts):
    (package / "pages").mkdir()
    for name, text in texts.items():
        (package / "pages" / f"{name.replace('_', '-')}.md").write_text(text)


def test_pages_of_a_package_are_explained(install):
    page = "Page(slug='other-slug', title='Other', means='', happens='', fix='', example='')"
    package = install(a_rule() + f"PAGE = {page}\n")
    write_pages(package, own_slug=PAGE.format("Own title"))
    assert autogradviz.explain("own-slug").title == "Own title"
    assert autogradviz.explain("other-slug").title == "Other"
    lines = [line.split() for line in read_pages.overview()[-2:]]
    assert lines == [["other-slug", "Other"], ["own-slug", "Own", "title"]]
    assert read_pages.pages()[-1].slug == "unsupported-torch"


def test_malformed_page_is_named_in_one_warning(install):
    package = install(a_rule(), package="broken")
    write_pages(package, own_slug="# No page\n", second_slug=PAGE.format("Second"))
    (message,) = warned(read_pages.overview)
    assert message.startswith(
        "the plug-in broken (entry point named of autogradviz.rules) has a page that cannot be "
        "read: ValueError: "
    )
    assert autogradviz.explain("second-slug").title == "Second"


def test_page_of_a_package_does_not_replace_ours(install):
    before = autogradviz.explain("graph-lost")
    package = install(a_rule())
    write_pages(package, graph_lost=PAGE.format("Theirs"))
    assert autogradviz.explain("graph-lost") == before
    assert [line for line in read_pages.overview() if "Theirs" in line] == []


def test_package_without_a_module_has_no_pages(install):
    install("x = 3", value="{}:x")
    assert len(read_pages.overview()) == len(read_pages.pages())


# --- formats ------------------------------------------------------------------------------------


def install_format(install, package="own", **changes):
    install(a_format(**changes), "autogradviz.formats", "{}:FORMAT", package)


def test_format_of_a_package_is_chosen_by_name_and_by_suffix(install, tmp_path):
    install_format(install)
    trace = autogradviz.Trace(make_log(op("exp")))
    trace.export("x.own")
    trace.export("x.own")  # its signature is in the file
    trace.export("y", format="own")
    assert (tmp_path / "x.own").read_text() == (tmp_path / "y").read_text() == "own"
    with pytest.raises(ValueError, match=r"x\.unknown has none of the suffixes .*, \.own; rename"):
        trace.export("x.unknown")


REJECTED_FORMATS = {
    "is no format": ({}, "{}:write", "TypeError: <function write at 0x.*> is not a Format"),
    "has a taken name": ({"name": "'dot'"}, "{}:FORMAT", "the name 'dot' is taken"),
    "has a taken suffix": ({"suffixes": "('.x', '.json')"}, "{}:FORMAT", "suffix '.json' is taken"),
    "has the end of a taken suffix": (
        {"suffixes": "('.x.json',)"},
        "{}:FORMAT",
        "the suffix '.x.json' is taken",
    ),
    "has a suffix in capitals": ({"suffixes": "('.X',)"}, "{}:FORMAT", "suffix '.X' is taken, or"),
    "has one suffix": ({"suffixes": "'.own'"}, "{}:FORMAT", "its suffixes is no tuple"),
    "has no suffix": ({"suffixes": "()"}, "{}:FORMAT", "ValueError: a format needs a name, a suf"),
    "has no signature": ({"signature": "b''"}, "{}:FORMAT", "ValueError: a format needs a name"),
    "has a text as signature": ({"signature": "'own'"}, "{}:FORMAT", "its signature is no bytes"),
    "has a function as writer": ({"writer": "print"}, "{}:FORMAT", "its writer is no str"),
    "has other arguments": ({"ending": "'.x'"}, "{}:FORMAT", "unexpected keyword argument"),
}


@pytest.mark.parametrize("case", REJECTED_FORMATS)
def test_format_that_cannot_be_used_is_named_in_one_warning(case, install):
    changes, value, problem = REJECTED_FORMATS[case]
    install(a_format(**changes), "autogradviz.formats", value, "broken")
    install_format(install, "good")
    (message,) = warned(all_formats)
    begin = "the plug-in broken (entry point named of autogradviz.formats) was left out: "
    assert message.startswith(begin)
    assert re.search(problem, message)
    assert [*all_formats()] == [*FORMATS, "own"]


@pytest.mark.parametrize(
    ("writer", "problem"),
    [
        ("__name__ + ':missing'", "failed: AttributeError: "),
        ("'no_such_module:write'", "failed: ModuleNotFoundError: "),
        ("'math:sqrt'", r"failed: TypeError: "),
        ("'builtins:print'", "wrote no file"),
    ],
)
def test_format_that_fails_is_named_in_one_error(writer, problem, install, tmp_path):
    install_format(install, "broken", writer=writer)
    trace = autogradviz.Trace(make_log(op("exp")))
    (tmp_path / "x.own").write_text("own: an earlier export")
    named = rf"the plug-in broken \(entry point named of autogradviz.formats\) {problem}"
    with pytest.raises(AutogradvizError, match=rf"the format own of {named}"):
        trace.export("x.own")
    assert {path.name for path in tmp_path.iterdir()} == {"site", "x.own"}
    assert (tmp_path / "x.own").read_text() == "own: an earlier export"
    trace.export("x.dot")


# --- loading ------------------------------------------------------------------------------------


def test_entry_points_are_read_only_when_they_are_needed(tmp_path):
    code = (
        "import sys, importlib.metadata\n"
        "importlib.metadata.distributions = lambda **_: print('scanned') or iter(())\n"
        "import autogradviz\n"
        "from autogradviz.cli import main\n"
        "autogradviz.Trace.export, autogradviz.record, autogradviz.explain('graph-lost')\n"
        "main(['explain', 'graph-freed'])\n"
        "print('then')\n"
        "main(['explain'])"
    )
    environment = {"AUTOGRADVIZ_PLUGINS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    before, _, after = done.stdout.partition("then\n")
    assert ("scanned" in before, "scanned" in after) == (False, True)


def test_interface_can_be_imported_by_name():
    from autogradviz import plugins

    assert sorted(plugins.__all__) == plugins.__all__
    assert {name for name in plugins.__all__ if not getattr(plugins, name).__doc__} == set()
    found = plugins.rule("a-b", when=NoError())(lambda _: iter([A_DRAFT]))
    assert [each.title for each in found.findings(plugins.Evidence(OK))] == ["found"]


A_DRAFT = Draft(title="found", culprit=None, victim=None, explanation=(), fix="")
