"""Answers print as text and display as HTML, and are lists."""

import make_log as m
import pytest
from test_terminal_text import finding

from autogradviz.analysis import SourceLocation
from autogradviz.causes import Explanation, ExplanationStep
from autogradviz.causes.answers_as_html import source_lines
from autogradviz.trace import Trace
from autogradviz.trace_method_results.lists_of_findings_and_saved_tensors import MOST_ROWS, Findings


def test_findings_print_as_text_and_are_a_list():
    found = Findings([finding()])
    assert repr(found).splitlines()[:3] == [
        "b was written  [saved-tensor-mutated, certain]",
        "  culprit /a/train.py:5, in step",
        "          b.add_(1)",
    ]
    assert found == [finding()]
    assert isinstance(found, list)
    assert repr(found[:1]) == repr(found)
    assert repr(Findings()) == "No findings."
    assert Findings()._repr_html_() == "<p>No findings.</p>"


def test_a_finding_prints_as_text_without_control_characters():
    shown = finding(title="a\x1b[2Jb")
    assert repr(shown) == str(shown)
    assert str(shown).splitlines() == [
        "a�[2Jb  [saved-tensor-mutated, certain]",
        "  culprit /a/train.py:5, in step",
        "          b.add_(1)",
        "  fix     b = b + 1",
        "",
        "  It was needed.",
    ]


def test_an_explanation_is_a_card_with_its_steps(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("a = 1\nb = 3 < a\n")
    place = SourceLocation(filename=str(script), lineno=2, function="step", text="b = 3 < a")
    step = ExplanationStep(text="it is <read> here", location=place, statement="", events=())
    last = ExplanationStep(text="nothing reads it", location=None, statement="", events=())
    page = Explanation(target="b", question="no gradient", steps=(step, last))._repr_html_()
    assert "1. it is &lt;read&gt; here" in page
    assert "<b>b = 3 &lt; a</b>" in page
    assert "2. nothing reads it" in page


def test_card_of_a_finding_has_three_source_lines(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("if True:\n    a = 1\n    b.add_(a < 1)\n    c = 2\n")
    place = SourceLocation(filename=str(script), lineno=3, function="step", text="b.add_(a < 1)")
    assert source_lines(place) == [("a = 1", False), ("b.add_(a < 1)", True), ("c = 2", False)]
    page = Findings([finding(culprit=place)])._repr_html_()
    assert "a = 1\n<b>b.add_(a &lt; 1)</b>\nc = 2" in page
    assert "b = b + 1" in page


@pytest.mark.parametrize("text", ["b.add_(2)", ""])
def test_card_of_a_changed_file_has_the_recorded_line_only(tmp_path, text):
    script = tmp_path / "train.py"
    script.write_text("a = 1\nb = 3\n")
    place = SourceLocation(filename=str(script), lineno=2, function="", text=text)
    assert source_lines(place) == [(text or "(source not available)", True)]


def test_text_of_a_finding_is_escaped():
    page = Findings([finding(title="<script>", fix="<b>")])._repr_html_()
    assert "<script>" not in page
    assert "&lt;script&gt;" in page


def test_saved_tensors_print_and_display_as_a_table():
    log = m.make_log(
        m.tensor(1, (4, 16), nbytes=256), m.node(7, "ExpBackward0"),
        m.saved(1, 1, node=7, slot="result", at="train.py:3"),
    )  # fmt: skip
    saved = Trace(log).saved_tensors()
    assert repr(saved).splitlines() == [
        "saved tensor         contents      version  bytes  line",
        "ExpBackward0.result  float32 4×16  0        256 B  train.py:3",
    ]
    assert "<td>ExpBackward0.result</td>" in saved._repr_html_()
    assert repr(saved[0]) == "<SavedTensor result: float32[4, 16], version 0, 256 B, train.py:3>"
    assert saved == list(saved)
    assert repr(Trace(m.make_log()).saved_tensors()) == "No saved tensors."


def test_long_list_of_saved_tensors_is_cut_and_says_so():
    log = m.make_log(m.tensor(1), *(m.saved(n, 1) for n in range(1, MOST_ROWS + 4)))
    saved = Trace(log).saved_tensors()
    assert repr(saved).splitlines()[-1] == "3 more"
    assert saved._repr_html_().endswith("<p>3 more</p>")


@pytest.mark.parametrize(
    ("runs", "text"),
    [
        ([m.started(1), m.backward_ended(failed=True)], "AddBackward0 #1 ran 1 time and failed"),
        (
            [m.ran(1), m.started(1), m.backward_ended(failed=True)],
            "AddBackward0 #1 ran 2 times and failed",
        ),
        ([m.ran(1), m.backward_ended()], "AddBackward0 #1 ran 1 time"),
        ([m.backward_ended()], "AddBackward0 #1 did not run in any backward"),
    ],
)
def test_a_node_that_failed_has_run(runs, text):
    log = m.make_log(m.node(1, "AddBackward0", nr=1), m.backward(), *runs)
    assert Trace(log).why(1).steps[0].text == text
