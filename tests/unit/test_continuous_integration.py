"""Findings in continuous integration: codes, accepted findings, SARIF, exit codes."""

import ast
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from test_cli import run, save, save_failing

import autogradviz
from autogradviz.analysis.types import SourceLocation
from autogradviz.cli import subcommand_and_exit_codes as exit_codes
from autogradviz.continuous_integration.accepted_findings import (
    describe_states,
    key_of,
    report,
)
from autogradviz.continuous_integration.sarif import to_sarif
from autogradviz.diagnose import Finding
from autogradviz.explanations.codes import codes
from autogradviz.explanations.read_pages import pages
from autogradviz.integrations.pytest_plugin import _read_marker
from autogradviz.render.terminal_text import as_text, render_findings
from autogradviz.support.source_lines_and_libraries import parse

ROOT = Path(autogradviz.__file__).parents[1]
HOME = "/home/ada/project"


def finding(text="b.add_(1)", *, fix="b = b.add(1)", confidence="certain", file="train.py"):
    line = SourceLocation(filename=f"{HOME}/{file}", lineno=5, function="step", text=text)
    return Finding(
        slug="saved-tensor-mutated",
        title="ExpBackward0.result was written",
        culprit=line,
        victim=replace(line, lineno=4, text="b = a.exp()"),
        explanation=f"see {HOME}/train.py:5 and /home/eve/notes.txt",
        fix=fix,
        confidence=confidence,
        events=(5,),
    )


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


# --- codes, allowed lines, applicability ------------------------------------------------------


def test_every_kind_of_finding_has_a_code_of_its_own():
    slugs = {page.slug for group in ("findings", "runs") for page in pages(group)}
    assert slugs <= codes().keys(), (
        "add the new slugs at the end of a list in explanations/codes.py"
    )
    assert len(set(codes().values())) == len(codes())
    assert (codes()["saved-tensor-mutated"], codes()["graph-lost"]) == ("AGV101", "AGV401")
    assert replace(finding(), slug="of-a-plugin").code == "AGV000"


def test_page_of_a_code_is_that_of_its_slug():
    assert autogradviz.explain("agv401").slug == "graph-lost"


@pytest.mark.parametrize(
    ("comment", "reason"),
    [
        ("# autogradviz: allow(saved-tensor-mutated): backward is over", "backward is over"),
        ("# autogradviz:allow(graph-lost, AGV101):meant", "meant"),
        ("# noqa: E1  # autogradviz: allow(AGV101): meant", "meant"),
        ("# autogradviz: allow(graph-lost): another finding", ""),
        ("# autogradviz: allow(saved-tensor-mutated)", ""),  # a reason is needed
        ("# autogradviz: allow(saved-tensor-mutated):  ", ""),
        ("allow(saved-tensor-mutated): no comment", ""),
    ],
)
def test_comment_on_the_line_allows_the_findings_that_it_names(comment, reason):
    assert finding(f"b.add_(1)  {comment}").allowed == reason


def test_comment_on_the_line_of_the_victim_counts_only_without_a_culprit():
    found = finding()
    comment = "# autogradviz: allow(AGV101): meant"
    found = replace(found, victim=replace(found.victim, text=comment))
    assert (found.allowed, replace(found, culprit=None).allowed) == ("", "meant")


def test_marker_of_pytest_accepts_allowed_findings():
    accepts = _read_marker(pytest.mark.autogradviz_no_findings.mark)
    comment = "b.add_(1)  # autogradviz: allow(AGV101): meant"
    assert [accepts(each) for each in (finding(), finding(comment))] == [False, True]


@pytest.mark.parametrize(
    ("changes", "applicability"),
    [
        ({}, "certain"),
        ({"confidence": "likely"}, "needs review"),
        ({"fix": "# write to a clone"}, "needs review"),
        ({"fix": "b = b.add(1)  # or clone"}, "needs review"),
        ({"fix": "b = c.add(1)"}, "needs review"),  # c is not in the statement
        ({"fix": "b = b.clone()\nb.add_(1)"}, "needs review"),
        ({"text": "with b.add_(1):"}, "needs review"),  # the recording has a part of it
    ],
)
def test_fix_is_certain_if_it_rewrites_the_statement_alone(changes, applicability):
    assert finding(**changes).applicability == applicability


# --- baselines and exit codes -----------------------------------------------------------------


def test_fingerprint_is_that_of_the_line_whatever_its_number_events_and_title():
    found, root = finding(), Path(HOME)

    def fingerprint_of(each, root=root):
        (shown,) = report([("", each)], Counter(), root)
        return shown.as_json(root)["fingerprint"]

    moved = replace(
        found,
        culprit=replace(found.culprit, lineno=90),
        title="3 parameters, 12 times",
        events=(7, 8),
        nodes=(4,),
        confidence="hint",
    )
    checkout = replace(
        found, culprit=replace(found.culprit, filename="/other/checkout/train.py", lineno=2)
    )
    assert fingerprint_of(moved) == fingerprint_of(found)
    assert fingerprint_of(checkout, Path("/other/checkout")) == fingerprint_of(found)
    others = (
        replace(found, slug="silent-write"),
        finding("c.add_(1)"),
        finding(file="eval.py"),
        replace(found, culprit=replace(found.culprit, function="eval")),
    )
    assert len({fingerprint_of(each) for each in (found, *others)}) == 5


def test_json_and_sarif_have_the_same_fingerprint():
    (shown,) = report([("", finding())], Counter(), Path(HOME))
    result, *_ = sarif_of(finding())[1]
    assert result["partialFingerprints"] == {
        "lineText/v1": shown.as_json(Path(HOME))["fingerprint"]
    }


def test_baseline_accepts_a_finding_whose_line_has_moved_and_as_often_as_it_was_found():
    old = finding()
    moved = replace(old, culprit=replace(old.culprit, lineno=90))
    baseline = Counter([key_of(old, Path(HOME))])
    reported = report([("", moved), ("", moved), ("", finding("c.add_(1)"))], baseline, Path(HOME))
    assert [each.state for each in reported] == ["baseline", "new", "new"]


def test_baseline_is_written_read_and_counted(folder, capsys):
    path = save_failing(folder / "x.agv")
    assert run("diagnose", path, "--write-baseline", "known.json") == 0
    assert capsys.readouterr().err == "autogradviz: known.json accepts 1 finding\n"
    assert run("diagnose", path, "--baseline", "known.json", "--fail-on", "hint") == 0
    out = capsys.readouterr().out
    assert out.startswith("in the baseline\n")
    assert "1 finding: 0 new, 0 allowed, 1 in the baseline" in out
    assert run("diagnose", path, "--baseline", "known.json", "--json") == 0
    (shown,) = json.loads(capsys.readouterr().out)
    assert (shown["state"], shown["code"], shown["query"]) == (
        "baseline", "AGV101", "unpacked-changed",
    )  # fmt: skip
    assert run("diagnose", path, "--write-baseline", "known.json") == 0  # its own file


def test_other_files_are_no_baseline_and_are_not_replaced(folder, capsys):
    path = save_failing(folder / "x.agv")
    Path("notes.json").write_text('{"findings": []}')
    assert run("diagnose", path, "--baseline", "notes.json") == 2
    assert "is not a baseline" in capsys.readouterr().err
    assert run("diagnose", path, "--write-baseline", "notes.json") == 2
    assert Path("notes.json").read_text() == '{"findings": []}'


@pytest.mark.parametrize("least", ["certain", "likely", "hint"])
def test_exit_code_says_whether_a_new_finding_is_sure_enough(folder, least):
    with pytest.raises(SystemExit) as ended:
        run("diagnose", save_failing(folder / "x.agv"), "--fail-on", least)
    assert ended.value.code == exit_codes.NEGATIVE
    assert run("diagnose", save(folder / "y.agv"), "--fail-on", least) == 0


def test_commands_exit_with_documented_codes_only():
    known = {name: code for name, code in vars(exit_codes).items() if isinstance(code, int)}
    raised = [
        ast.unparse(node.args[0]) if node.args else ""
        for path in (ROOT / "autogradviz" / "cli").glob("*.py")
        for node in ast.walk(parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in {"SystemExit", "sys.exit"}
    ]
    assert raised
    assert set(raised) <= known.keys()
    documented = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
    assert all(f"| {code} |" in documented for code in {0, *known.values()})


# --- SARIF ------------------------------------------------------------------------------------


def record(*required, **properties):
    """Return the schema of an object."""
    return {
        "type": "object",
        "required": list(required),
        "properties": properties,
        "additionalProperties": False,
    }


def array(items):
    return {"type": "array", "items": items}


STRING = {"type": "string"}
TEXT = record("text", text=STRING)
LINE = record("startLine", startLine={"type": "integer", "minimum": 1}, snippet=TEXT)
FILE = record(
    "uri",
    uri={"type": "string", "pattern": r"^[^/\\~][^\\ ]*$"},
    uriBaseId={"enum": ["SRCROOT", "ELSEWHERE"]},
)
PLACE = record(
    message=TEXT,
    logicalLocations=array(record("fullyQualifiedName", fullyQualifiedName=STRING)),
    physicalLocation=record("artifactLocation", artifactLocation=FILE, region=LINE),
)
ACCEPTED = record("kind", kind={"enum": ["inSource", "external"]}, justification=STRING)
RESULT = record(
    "message", "ruleId", "ruleIndex", "level", "locations",
    ruleId={"type": "string", "pattern": "^AGV[0-9]{3}$|^of-a-plugin$"},
    ruleIndex={"type": "integer", "minimum": 0},
    level={"enum": ["none", "note", "warning", "error"]},
    message=TEXT,
    locations=array(PLACE),
    relatedLocations=array(PLACE),
    partialFingerprints={"additionalProperties": STRING},
    suppressions=array(ACCEPTED),
    properties={"type": "object"},
)  # fmt: skip
RULE = record(
    "id", id=STRING, name=STRING, shortDescription=TEXT, fullDescription=TEXT, help=TEXT,
    properties={"type": "object"},
)  # fmt: skip
DRIVER = record("name", name=STRING, semanticVersion=STRING, rules=array(RULE))
NOTICE = record("message", message=TEXT, level={"enum": ["none", "note", "warning", "error"]})
RUN = record(
    "tool", "results",
    tool=record("driver", driver=DRIVER),
    invocations=array(
        record(
            "executionSuccessful", executionSuccessful={"type": "boolean"},
            toolExecutionNotifications=array(NOTICE),
        )
    ),
    originalUriBaseIds={"additionalProperties": record("description", description=TEXT)},
    columnKind={"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
    results=array(RESULT),
)  # fmt: skip
SARIF = record(
    "version", "runs", **{"$schema": STRING}, version={"const": "2.1.0"}, runs=array(RUN)
)
"""The parts of the schema of SARIF 2.1.0 that concern results."""


def sarif_of(*findings, problem=None):
    allowed = finding("b.add_(1)  # autogradviz: allow(AGV101): meant")
    baseline = Counter([key_of(finding("old.add_(1)"), Path(HOME))])
    all_findings = [("", each) for each in (*findings, allowed, finding("old.add_(1)"))]
    found = to_sarif(report(all_findings, baseline, Path(HOME)), Path(HOME), problem)
    jsonschema.validate(found, SARIF)
    return found, found["runs"][0]["results"]


def test_sarif_has_what_its_schema_requires_and_the_rules_of_its_results():
    hint = replace(finding(), slug="graph-lost", confidence="hint", culprit=None, victim=None)
    found, results = sarif_of(finding(), hint, problem=f"{HOME}/x.agv is cut off")
    rules = found["runs"][0]["tool"]["driver"]["rules"]
    assert [rules[each["ruleIndex"]]["id"] for each in results] == [r["ruleId"] for r in results]
    assert [each["level"] for each in results] == ["error", "note", "error", "error"]
    assert [each["locations"] == [] for each in results] == [False, True, False, False]
    (notice,) = found["runs"][0]["invocations"][0]["toolExecutionNotifications"]
    assert notice["message"]["text"] == "x.agv is cut off"


def test_sarif_has_a_rule_for_each_kind_of_a_plugin():
    found, results = sarif_of(replace(finding(), slug="of-a-plugin"))
    rules = found["runs"][0]["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == ["of-a-plugin", "AGV101"]
    assert results[0]["ruleId"] == "of-a-plugin"


def test_sarif_shows_accepted_findings_as_suppressed():
    _, results = sarif_of(finding())
    kinds = [[s["kind"] for s in each.get("suppressions", [])] for each in results]
    assert kinds == [[], ["inSource"], ["external"]]
    assert results[1]["suppressions"][0]["justification"] == "meant"


def test_sarif_has_relative_paths_and_no_home_folder():
    package = finding()
    line = replace(package.culprit, filename="/home/ada/env/lib/site-packages/pack age/m.py")
    cell = replace(line, cell=3)
    found, results = sarif_of(
        replace(package, culprit=line), finding(file="../../eve/other.py"),
        replace(package, culprit=cell),
    )  # fmt: skip
    assert "/home" not in json.dumps(found)
    places = [each["locations"][0].get("physicalLocation") for each in results]
    artifacts = [place and tuple(place["artifactLocation"].values()) for place in places]
    assert artifacts[:2] == [("pack%20age/m.py", "ELSEWHERE"), ("other.py", "ELSEWHERE")]
    assert artifacts[2:] == [None, ("train.py", "SRCROOT"), ("train.py", "SRCROOT")]


def test_fingerprints_of_equal_findings_differ_and_do_not_depend_on_line_numbers():
    def marks(*findings):
        return [each["partialFingerprints"]["lineText/v1"] for each in sarif_of(*findings)[1]]

    moved = replace(finding(), culprit=replace(finding().culprit, lineno=77))
    first, second, *_ = marks(finding(), finding())
    assert first != second
    assert marks(moved)[0] == first


def test_text_shows_the_reason_of_an_allowed_finding():
    allowed = finding("b.add_(1)  # autogradviz: allow(AGV101): backward is over")
    assert "  allowed backward is over" in as_text(render_findings([allowed])).splitlines()
    assert describe_states(report([("", allowed)], Counter(), Path(HOME))) == (
        "1 finding: 0 new, 1 allowed, 0 in the baseline"
    )


def test_command_prints_sarif(folder, capsys):
    assert run("diagnose", save_failing(folder / "x.agv"), "--sarif") == 0
    found = json.loads(capsys.readouterr().out)
    jsonschema.validate(found, SARIF)
    (result,) = found["runs"][0]["results"]
    place = result["locations"][0]["physicalLocation"]
    assert (place["artifactLocation"]["uri"], place["region"]["startLine"]) == ("train.py", 5)
