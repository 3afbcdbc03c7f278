"""Traces and findings as terminal text."""

import make_log as m
import pytest
from make_scene import Box, scene_of

from autogradviz.analysis import Analysis, SourceLocation
from autogradviz.analysis.formatting import format_bytes
from autogradviz.cli.show import overview
from autogradviz.diagnose import Finding
from autogradviz.event_log import Log
from autogradviz.render.terminal_text import (
    as_text,
    finding_note,
    print_out,
    render_findings,
    render_summary,
)
from autogradviz.scene import build_scene
from autogradviz.trace import Trace


def finding(**more):
    line = SourceLocation(filename="/a/train.py", lineno=5, function="step", text="b.add_(1)")
    fields = {
        "slug": "saved-tensor-mutated",
        "title": "b was written",
        "culprit": line,
        "victim": None,
        "explanation": "It was needed.",
        "fix": "b = b + 1",
        "confidence": "certain",
        "events": (1,),
    }
    return Finding(**fields | more)


@pytest.mark.parametrize(
    ("nbytes", "words"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (3_140_000, "3.1 MB"),
        (2_500_000_000_000, "2.5 TB"),
    ],
)
def test_sizes_are_decimal(nbytes, words):
    assert format_bytes(nbytes) == words


def test_summary_lists_figures_and_then_findings():
    scene = scene_of(Box(1, "exp"), Box(2, "sum", to=[1]), findings=(finding(),), title="x.agv")
    lines = as_text(render_summary(scene, Analysis(Log()))).splitlines()
    assert lines[0].startswith("x.agv")
    assert lines[1] == "graph    2 nodes, 1 edges, 1 backward"
    assert lines[-2:] == [
        "finding  b was written  train.py:5",
        'next     trace.diagnose() to read the findings · trace.html("report.html") to explore',
    ]


def test_empty_recording_has_a_summary():
    analysis = Analysis(Log())
    text = as_text(render_summary(build_scene(analysis, ()), analysis))
    assert "graph  0 nodes, 0 edges, 0 backward" in text


def test_summary_has_the_first_line_of_the_error():
    log = m.make_log(m.raised("ValueError", "too far\nand more"))
    analysis = Analysis(log)
    lines = as_text(render_summary(build_scene(analysis, ()), analysis)).splitlines()
    assert lines[-2:] == [
        "raised  ValueError: too far",
        'next    no findings · trace.html("report.html") to explore',
    ]


@pytest.mark.parametrize(
    ("option", "shown"),
    [
        ("python: the native one [x] is not built", ["Python (the native one [x] is not built)"]),
        ("python: it was chosen", []),
        ("native", []),
    ],
)
def test_summary_names_the_python_engine_unless_it_was_chosen(option, shown):
    analysis = Analysis(m.make_log(m.began(options=("ops", option))))
    lines = as_text(render_summary(build_scene(analysis, ()), analysis)).splitlines()
    rows = dict(line.split(maxsplit=1) for line in lines[1:])
    assert [text for label, text in rows.items() if label == "engine"] == shown


def test_summary_and_overview_name_one_duration():
    """The time in which something ran, as in the viewer's header."""
    log = m.make_log(
        m.op("exp", (1,), time_ns=30_000_000, duration_ns=1_000_000),
        m.op("sin", (2,), time_ns=35_000_000, duration_ns=4_000_000),
        m.op("cos", (3,), time_ns=39_000_000, duration_ns=1_000_000),
        m.op("tan", (4,), time_ns=40_000_000),
    )
    trace = Trace(log)
    expected = f"ops    4 in 6.0 ms active ({len(log)} events)"
    assert expected in str(trace).splitlines()
    assert expected.split() in [line.split() for line in as_text(overview(trace)).splitlines()]


def test_findings_have_culprit_explanation_and_fix():
    assert as_text(render_findings([finding()])).splitlines() == [
        "b was written  [saved-tensor-mutated, certain]",
        "  culprit /a/train.py:5, in step",
        "          b.add_(1)",
        "  fix     b = b + 1",
        "",
        "  It was needed.",
    ]


def test_no_findings_are_reported():
    assert as_text(render_findings([])) == "No findings."


def test_exception_note_begins_with_line_and_fix():
    assert finding_note(finding()) == (
        "autogradviz: b was written\n\nculprit /a/train.py:5, in step\n        b.add_(1)\n"
        "fix     b = b + 1\n\nIt was needed."
    )


@pytest.mark.parametrize("command", ["\x1b[2J", "\x1b]0;title\x07", "\x9b1m", "\r", "\b", "\udc80"])
def test_control_characters_of_a_file_are_removed(command):
    output = as_text(
        render_findings([finding(title=f"a{command}b", explanation=command, fix=command)])
    )
    scene = scene_of(Box(1, "exp"), title=f"a{command}b")
    output += as_text(render_summary(scene, Analysis(Log())))
    assert {letter for letter in output if not letter.isprintable()} == {"\n"}
    assert output.isprintable() or output.encode()


def test_text_in_a_notebook_prints_nothing(monkeypatch, capsys):
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    assert as_text(render_findings([])) == "No findings."
    assert capsys.readouterr() == ("", "")


def test_rich_markup_is_plain_text():
    assert as_text(render_findings([finding(title="[bold]x[/bold] [/]")])).startswith(
        "[bold]x[/bold] [/]"
    )


def test_note_has_at_most_thirty_lines_and_keeps_its_fix():
    long = finding(explanation="\n".join(f"line {i}" for i in range(60)), fix="a\nb\nc")
    note = finding_note(long).splitlines()
    assert len(note) == 30
    assert note[0] == "autogradviz: b was written"
    assert note[4:9] == ["fix     a", "        b", "        c", "", "line 0"]
    assert note[-1] == "…"


def test_code_is_never_broken_into_lines():
    fix = "x = torch.where(mask, x, torch.zeros_like(x))  # " + "and the reason for it " * 6
    shown = finding(fix=fix, explanation="They differ. " * 20 + f"\n    {fix}")
    lines = as_text(render_findings([shown])).splitlines()
    assert f"  fix     {fix}".rstrip() in lines
    assert f"      {fix}".rstrip() in lines
    assert max(len(line) for line in lines if "differ" in line) <= 100


def test_line_of_a_module_is_named():
    line = SourceLocation(filename="train.py", lineno=5, function="", text="b.add_(1)")
    assert "  culprit train.py:5, in <module>" in as_text(render_findings([finding(culprit=line)]))


def test_piped_output_has_no_blanks_at_the_ends_of_lines(capsys):
    print_out(render_findings([finding(explanation="Two\nlines")]), "more")
    lines = capsys.readouterr().out.split("\n")
    assert "  Two" in lines
    assert lines == [line.rstrip() for line in lines]
    assert lines[-2:] == ["more", ""]
