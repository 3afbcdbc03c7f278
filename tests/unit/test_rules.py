"""The registry of rules: slugs, pages, priorities, conditions and derived fields of findings."""

from __future__ import annotations

import ast
import runpy
from collections import Counter
from pathlib import Path

import pytest
from make_log import backward, entered, exited, make_log, node, op, raised, recompute, recomputed

import autogradviz
from autogradviz.analysis import Analysis
from autogradviz.causes.choose_findings_among_facts import OWN_SLUGS
from autogradviz.diagnose import diagnose
from autogradviz.diagnose.evidence.evidence import Evidence
from autogradviz.diagnose.rule import Always, Draft, ErrorMessage, NoError, all_rules, rule
from autogradviz.explanations.read_pages import Page, pages
from autogradviz.support.source_lines_and_libraries import parse

ROOT = Path(__file__).parents[2]
RULES = Path(autogradviz.__file__).parent / "diagnose" / "rules"
SLUGS = sorted({slug for rule in all_rules() for slug in rule.slugs})
"""Of rules; those of the causal graph are tested in test_audit.py."""


def test_every_rule_module_registers_a_rule():
    modules = {path.stem for path in RULES.glob("*.py")} - {"__init__"}
    found = {rule.find.__module__.rpartition(".")[2] for rule in all_rules()}
    assert modules == found


def test_every_kind_of_finding_has_a_page():
    assert [page.slug for page in pages("findings")] == sorted([*SLUGS, *OWN_SLUGS])


def test_rule_names_are_unique():
    assert max(Counter(rule.name for rule in all_rules()).values()) == 1


def test_superseded_slugs_exist():
    assert {slug for rule in all_rules() for slug in rule.supersedes} <= set(SLUGS)


def test_no_rule_imports_another_rule():
    found = {
        path.stem
        for path in RULES.glob("*.py")
        for statement in ast.walk(parse(path.read_text(encoding="utf-8")))
        if isinstance(statement, ast.ImportFrom) and "diagnose.rules" in statement.module
    }
    assert found == set()


def test_findings_documentation_is_up_to_date():
    generated = runpy.run_path(str(ROOT / "docs" / "generate_findings.py"))["documents"]()
    found = [*(ROOT / "docs" / "findings").glob("*.md"), *ROOT.glob("docs/findings.md")]
    found += ROOT.glob("docs/errors.md")
    assert {path: path.read_text(encoding="utf-8") for path in found} == generated


# --- unit tests ---------------------------------------------------------------------------------


UNIT_TESTS = "\n".join(
    path.read_text(encoding="utf-8")
    for path in [ROOT / "tests/unit/test_diagnose.py", *(ROOT / "tests/unit/rules").glob("*.py")]
)


def test_every_slug_has_a_unit_test_on_a_hand_written_log():
    assert [slug for slug in SLUGS if f'"{slug}"' not in UNIT_TESTS] == []


def test_every_rule_has_a_unit_test():
    names = {rule.name for rule in all_rules()} - {"graph_lost"}  # in test_diagnose.py, by slug
    assert [name for name in sorted(names) if name not in UNIT_TESTS] == []


# --- conditions ---------------------------------------------------------------------------------

OK = Analysis(make_log(op("exp")))
FAILED = Analysis(make_log(op("exp"), raised("torch.SomeError", "a message of two words")))


@pytest.mark.parametrize(
    ("condition", "without_error", "with_error"),
    [
        (Always(), True, True),
        (NoError(), True, False),
        (ErrorMessage(), False, True),
        (ErrorMessage("two words"), False, True),
        (ErrorMessage("three words"), False, False),
        (ErrorMessage(("three words", "two words")), False, True),
        (ErrorMessage("two words", without="three"), False, True),
        (ErrorMessage("words", without="two"), False, False),
        (ErrorMessage("two words", type="SomeError"), False, True),
        (ErrorMessage("two words", type="OtherError"), False, False),
    ],
)
def test_conditions(condition, without_error, with_error):
    assert (condition.holds(OK), condition.holds(FAILED)) == (without_error, with_error)


# --- from drafts to findings --------------------------------------------------------------------


def draft(**changes):
    fields = {"title": "t", "culprit": None, "victim": None, "explanation": (), "fix": ""}
    return Draft(**{**fields, **changes})


def a_rule(*drafts, slugs=("a",), when=Always(), **options):  # noqa: B008
    return rule(*slugs, when=when, **options)(lambda _: iter(drafts))


def finding(draft):
    return a_rule().fact(draft).finding()


def a_region():
    return Analysis(
        make_log(
            entered(4, at="t.py:2"),
            op("exp", (1,), nr=5, at="t.py:3"),
            exited(4),
            node(7, "ExpBackward0", nr=5),
            backward(roots=(7,)),
            recompute(1, 4),
            op("exp", (2,)),
            recomputed(1),
        )
    )


def test_events_nodes_and_region_are_derived_from_the_evidence_in_order():
    analysis = a_region()
    (region,) = analysis.regions
    (again,) = region.recomputations
    found = finding(
        draft(evidence=(analysis.ops[0], None, analysis.graph.nodes[7], again, region, 0))
    )
    assert found.events == (analysis.ops[0].seq, again.started_seq, region.entered_seq, 0)
    assert found.nodes == (7,)
    assert found.region_id == 4


def test_location_in_the_explanation_becomes_an_excerpt():
    written = a_region().ops[0]
    found = finding(draft(culprit=written, explanation=["wrote:", written, None, "", "end"]))
    assert found.culprit == written.location
    lines = found.explanation.splitlines()
    assert (lines[0], lines[-1]) == ("wrote:", "end")
    assert lines[1].strip().startswith("t.py:3, in ")
    assert len(lines) == 4


def test_finding_without_a_culprit_line_is_at_most_likely():
    assert finding(draft(culprit=a_region().ops[0])).confidence == "certain"
    assert finding(draft()).confidence == "likely"
    assert finding(draft(confidence="hint")).confidence == "hint"


def test_draft_has_one_of_the_slugs_of_its_rule():
    several = a_rule(slugs=("a", "b"))
    assert several.fact(draft()).slug == "a"
    assert several.fact(draft(slug="b")).slug == "b"
    with pytest.raises(ValueError, match="not declared to yield 'c'"):
        several.fact(draft(slug="c"))


# --- running rules ------------------------------------------------------------------------------


def titles(*rules, analysis=OK):
    return [finding.title for finding in diagnose(analysis, rules)]


def test_rule_runs_only_if_its_condition_holds():
    errors = a_rule(draft(title="error"), when=ErrorMessage("two words"))
    assert titles(errors) == []
    assert titles(errors, analysis=FAILED) == ["error"]


def test_rule_stops_after_its_maximum_number_of_findings():
    drafts = [draft(title=name) for name in "abc"]
    assert titles(a_rule(*drafts)) == ["a"]
    assert titles(a_rule(*drafts, at_most=2)) == ["a", "b"]
    assert titles(a_rule(*drafts, at_most=None)) == ["a", "b", "c"]


def test_rule_is_skipped_if_a_needed_option_was_off():
    class Without(Evidence):
        recorded = frozenset({"ops"})

    rule = a_rule(draft(), needs={"ops", "fingerprints"})
    assert len(list(rule.findings(Evidence(OK)))) == 1
    assert list(rule.findings(Without(OK))) == []


def test_findings_are_sorted_by_confidence_then_by_rule():
    first = a_rule(draft(title="1", confidence="likely"))
    second = a_rule(draft(title="2", confidence="certain"))
    third = a_rule(draft(title="3", confidence="likely"))
    assert titles(first, second, third) == ["2", "1", "3"]


def test_superseded_slug_is_dropped_in_the_same_region():
    general = a_rule(draft(title="here", region_id=1), draft(title="there", region_id=2), at_most=2)
    special = a_rule(draft(title="special", region_id=1), slugs=("b",), supersedes=("a",))
    assert titles(general, special) == ["there", "special"]


def test_culprit_line_of_an_earlier_finding_is_not_repeated():
    line = a_region().ops[0].location
    first = a_rule(draft(title="1", culprit=line))
    again = a_rule(
        draft(title="2", culprit=line), draft(title="3"), only_new_lines=True, at_most=None
    )
    assert titles(first, again) == ["1", "3"]


def test_page_prints_its_sections():
    page = Page(slug="a-b", title="T", means="m", happens="h", fix="f", example="x = 1\n")
    assert str(page) == (
        "T  [a-b]\n\nm\n\nHow it happens\nh\n\nHow to fix it\nf\n\nAn example\n    x = 1"
    )


def test_a_rule_with_an_unknown_mechanism_is_refused_at_once():
    with pytest.raises(ValueError, match=r"no mechanism 'gradient'; the mechanisms are cut, write"):
        rule("x", mechanism="gradient", when=NoError())
