"""The audit and its answers, on hand-written recordings."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from make_log import (
    accumulated,
    backward,
    began,
    fact,
    leaf,
    make_log,
    node,
    op,
    parameter,
    raised,
    recorder_limited,
    started,
    tensor,
)

import autogradviz
from autogradviz import events as e
from autogradviz.analysis import SourceLocation
from autogradviz.causes.audit import excerpts
from autogradviz.causes.why import ANOTHER_LINE, Explanation, ExplanationStep
from autogradviz.errors import AutogradvizWarning

WEIGHT, INPUT, PRODUCT, VIEW, SUM, LOSS = 1, 2, 3, 4, 5, 6


def trace(*facts):
    return autogradviz.Trace(make_log(began(), parameter(WEIGHT, "net.weight"), *facts))


def stepped(*tensor_ids, gradients=1, at="t.py:9"):
    return fact(
        e.OptimizerStepped,
        optimizer_name="SGD",
        tensor_ids=tensor_ids,
        gradient_count=gradients,
        at=at,
    )


def gradient(number, *, added=False, at="t.py:5"):
    """A backward that gives the weight a gradient, added to the one that it has or not."""
    return [
        backward(number, roots=(0,), at=at),
        started(9, backward=number, inputs=(50 + number,)),
        op("add_" if added else "detach", (50,), inputs=(50,), phase="backward", node=9),
        accumulated(9, WEIGHT, backward=number),
    ]


def listed(recorded):
    return [(entry.mechanism, str(entry.location)) for entry in recorded.audit()]


def loss_of(*, first_edge, tail=()):
    """A product with the weight, a view or copy of it, and a loss that reads both."""
    return [
        leaf(9, WEIGHT),
        op("mul", (PRODUCT,), inputs=(WEIGHT, INPUT), nr=0, at="t.py:1"),
        node(1, "MulBackward0", nr=0, to=(9, -1)),
        *tail,
        op("mul", (LOSS,), inputs=(PRODUCT, VIEW), nr=1, at="t.py:3"),
        node(0, "MulBackward0", nr=1, to=(first_edge, -1)),
        backward(1, roots=(0,), at="t.py:4"),
    ]


def test_a_detached_value_that_reaches_the_loss_is_a_cut():
    detach = op("detach", (VIEW,), inputs=(PRODUCT,), at="t.py:2")
    recorded = trace(
        tensor(VIEW, storage=PRODUCT),
        tensor(PRODUCT),
        loss_of(first_edge=1, tail=[detach]),
        accumulated(9, WEIGHT),
    )
    [entry] = recorded.audit()
    assert (entry.mechanism, str(entry.location)) == ("cut", "t.py:2")
    assert entry.parameters == ("net.weight",)
    assert "one path" in entry.effect


def test_a_detached_value_that_reaches_no_loss_is_no_entry():
    logged = op("detach", (VIEW,), inputs=(PRODUCT,), at="t.py:2")
    recorded = trace(
        tensor(VIEW, storage=PRODUCT),
        leaf(9, WEIGHT),
        op("mul", (PRODUCT,), inputs=(WEIGHT, INPUT), nr=0, at="t.py:1"),
        logged,
        node(0, "MulBackward0", nr=0, to=(9, -1)),
        backward(1, roots=(0,), at="t.py:4"),
        accumulated(9, WEIGHT),
    )
    assert listed(recorded) == []


def test_a_value_that_depends_on_no_parameter_is_no_entry():
    copied = op("detach", (VIEW,), inputs=(INPUT,), at="t.py:2")
    recorded = trace(
        tensor(VIEW, storage=INPUT),
        loss_of(first_edge=1, tail=[copied]),
        accumulated(9, WEIGHT),
    )
    assert listed(recorded) == []


def test_shapes_of_a_value_are_not_its_values():
    zeros = op("zeros_like", (VIEW,), inputs=(PRODUCT,), at="t.py:2")
    recorded = trace(loss_of(first_edge=1, tail=[zeros]), accumulated(9, WEIGHT))
    assert listed(recorded) == []


def test_integers_computed_from_a_parameter_are_a_cut():
    index = op("argmax", (VIEW,), inputs=(PRODUCT,), at="t.py:2")
    recorded = trace(
        tensor(VIEW, dtype="int64"),
        loss_of(first_edge=1, tail=[index]),
        accumulated(9, WEIGHT),
    )
    assert listed(recorded) == [("cut", "t.py:2")]


def test_an_op_in_no_grad_mode_is_a_cut_at_the_line_of_the_mode():
    off = fact(e.ModeChanged, mode="grad", before="on", after="off", at="t.py:2")
    on = fact(e.ModeChanged, mode="grad", before="off", after="on", at="t.py:2")
    half = op("mul", (VIEW,), inputs=(PRODUCT,), at="t.py:3")
    recorded = trace(loss_of(first_edge=1, tail=[off, half, on]), accumulated(9, WEIGHT))
    [entry] = recorded.audit()
    assert (entry.mechanism, str(entry.location)) == ("cut", "t.py:2")
    assert [str(other) for other in entry.others] == ["t.py:3"]


def test_a_gradient_that_is_cleared_before_a_step_is_dropped():
    recorded = trace(
        leaf(9, WEIGHT),
        gradient(1),
        op("zero_", (51,), inputs=(51,), writes=(51,), at="t.py:7"),
        stepped(WEIGHT),
    )
    assert "drop" in [mechanism for mechanism, _ in listed(recorded)]


def test_a_gradient_that_a_step_used_and_backward_adds_to_is_mixed():
    steps = [gradient(1), stepped(WEIGHT), gradient(2, added=True), stepped(WEIGHT)]
    assert ("mix", "t.py:9") in listed(trace(leaf(9, WEIGHT), steps))


def test_a_gradient_that_is_added_to_a_used_one_and_cleared_is_not_mixed():
    steps = [gradient(1), stepped(WEIGHT), gradient(2, added=True), gradient(3), stepped(WEIGHT)]
    assert "mix" not in [mechanism for mechanism, _ in listed(trace(leaf(9, WEIGHT), steps))]


def test_gradients_of_micro_batches_are_no_entry():
    recorded = trace(leaf(9, WEIGHT), gradient(1), gradient(2, added=True), stepped(WEIGHT))
    assert listed(recorded) == []


def test_a_step_before_the_first_backward_is_an_order():
    recorded = trace(leaf(9, WEIGHT), stepped(WEIGHT, gradients=0), gradient(1))
    assert ("order", "t.py:9") in listed(recorded)


def test_an_exception_names_the_lines_that_gave_operands_their_dtype():
    recorded = trace(
        tensor(PRODUCT, dtype="float64"),
        op("_to_copy", (PRODUCT,), inputs=(INPUT,), at="t.py:2"),
        op("addmm", inputs=(WEIGHT, PRODUCT, WEIGHT), failed=True, at="t.py:3"),
        raised("RuntimeError", "must have the same dtype", at="t.py:3"),
    )
    assert listed(recorded) == [("refuse", "t.py:2"), ("refuse", "t.py:3")]
    explanation = recorded.why("error")
    assert explanation.question == "raised"
    assert str(explanation.steps[-1].location) == "t.py:2"


def test_a_write_to_memory_that_was_read_before_and_is_read_after_is_an_entry():
    write = op("mul_", (PRODUCT,), inputs=(PRODUCT,), writes=(PRODUCT,), nr=1, at="t.py:2")
    recorded = trace(
        leaf(9, WEIGHT),
        op("mul", (PRODUCT,), inputs=(WEIGHT, INPUT), nr=0, at="t.py:1"),
        write,
        op("sum", (LOSS,), inputs=(PRODUCT,), nr=2, at="t.py:3"),
        node(2, "SumBackward0", nr=2, to=(1,)),
        node(1, "MulBackward0", nr=1, to=(0,)),
        node(0, "MulBackward0", nr=0, to=(9, -1)),
        backward(1, roots=(2,), at="t.py:4"),
        accumulated(9, WEIGHT),
    )
    [entry] = recorded.audit()
    assert (entry.mechanism, str(entry.location)) == ("write", "t.py:2")


def test_an_empty_recording_has_no_entry():
    audit = autogradviz.Trace(make_log()).audit()
    assert (len(audit), repr(audit), str(audit), audit.to_json()) == (
        0,
        "<Audit: nothing that needs a look>",
        "Nothing that needs a look. Nothing ran in the block: put the forward and the backward "
        "into it.",
        "[]",
    )  # fmt: skip


def test_entries_are_json_html_and_text():
    recorded = trace(leaf(9, WEIGHT), stepped(WEIGHT, gradients=0), gradient(1))
    audit = recorded.audit()
    assert json.loads(audit.to_json())[0]["mechanism"] == audit[0].mechanism
    assert audit._repr_html_().startswith("<div ")
    assert "t.py:9" in audit._repr_html_()
    assert "t.py:9" in str(audit)
    for entry in audit:
        for text in (entry.effect, *entry.fix.splitlines(), *entry.explanation.splitlines()):
            assert text in str(audit)
    assert audit.of("order") == (audit[0],)
    assert audit == list(audit)


def test_text_of_users_is_escaped_in_html():
    message = "<script>alert(1)</script>"
    recorded = trace(raised("RuntimeError", message, at="t.py:3"))
    for page in (recorded.audit()._repr_html_(), recorded.why("error")._repr_html_()):
        assert "<script>" not in page
        assert "&lt;script&gt;" in page


# --- why --------------------------------------------------------------------------------------


def test_a_parameter_without_a_gradient_leads_to_the_cut():
    detach = op("detach", (VIEW,), inputs=(PRODUCT,), at="t.py:2")
    recorded = trace(
        tensor(VIEW, storage=PRODUCT),
        parameter(7, "net.bias"),
        op("mul", (PRODUCT,), inputs=(WEIGHT, INPUT), nr=0, at="t.py:1"),
        detach,
        op("add", (LOSS,), inputs=(VIEW, 7), nr=1, at="t.py:3"),
        leaf(8, 7),
        node(0, "AddBackward0", nr=1, to=(-1, 8)),
        backward(1, roots=(0,), at="t.py:4"),
        accumulated(8, 7),
    )
    explanation = recorded.why("weight")
    assert (explanation.target, explanation.question) == ("net.weight", "no gradient")
    assert [str(step.location) for step in explanation.steps] == ["t.py:4", "t.py:1", "t.py:2"]
    assert json.loads(explanation.to_json())["question"] == "no gradient"


def test_a_parameter_that_no_op_reads():
    recorded = trace(
        op("mul", (PRODUCT,), inputs=(INPUT, INPUT), at="t.py:1"), backward(1, at="t.py:4")
    )
    assert "no recorded op reads" in recorded.why("net.weight").steps[-1].text


def test_a_recording_without_backward_says_what_to_record():
    explanation = trace().why("net.weight")
    assert "backward()" in explanation.to_record


def test_a_recording_of_the_last_steps_says_what_to_record():
    recorded = trace(recorder_limited("keep_steps", "3 steps"), backward(1))
    assert "keep_steps" in recorded.why("net.weight").to_record


def test_an_unknown_name_suggests_near_ones():
    with pytest.raises(ValueError, match=r"did you mean net\.weight"):
        trace().why("net.wieght")


def test_other_targets_and_questions_are_refused():
    with pytest.raises(TypeError, match="takes a parameter, module or tensor, or the name of one"):
        trace().why(1.5)
    with pytest.raises(ValueError, match="is none of"):
        trace().why("net.weight", "how many")


def test_a_node_is_found_by_number_and_name():
    recorded = trace(
        leaf(9, WEIGHT),
        op("mul", (PRODUCT,), inputs=(WEIGHT, INPUT), nr=0, at="t.py:1"),
        node(1, "MulBackward0", nr=0, to=(9, -1)),
        backward(1, roots=(1,), at="t.py:4"),
    )
    by_name, by_number = recorded.why("MulBackward0"), recorded.why(1)
    assert by_name == by_number
    assert str(by_name.steps[1].location) == "t.py:1"


def test_a_finding_is_a_target():
    recorded = trace(raised("RuntimeError", "a leaf Variable that requires grad", at="t.py:3"))
    [finding, *_] = recorded.diagnose()
    assert recorded.why(finding).steps[-1].location == finding.culprit


def test_a_sum_with_a_large_number_loses_precision(tmp_path):
    path = tmp_path / "t.py"
    path.write_text("def forward(x):\n    x = x + 1e6 - 1e6\n")
    recorded = trace(
        tensor(PRODUCT),
        tensor(SUM),
        leaf(9, WEIGHT),
        op("mul", (PRODUCT,), inputs=(WEIGHT, INPUT), nr=0, at=f"{path}:1"),
        node(1, "MulBackward0", nr=0, to=(9, -1)),
        op("add", (SUM,), inputs=(PRODUCT,), nr=1, at=f"{path}:2"),
        node(0, "AddBackward0", nr=1, to=(1,)),
        backward(1, roots=(0,), at="t.py:4"),
        accumulated(9, WEIGHT),
    )
    [finding] = recorded.diagnose()
    assert (finding.slug, finding.culprit.lineno) == ("precision-lost", 2)
    assert "multiples of 0.0625" in finding.title


def test_an_operand_of_a_usual_size_loses_no_precision(tmp_path):
    path = tmp_path / "t.py"
    path.write_text("def forward(x):\n    x = x + 1e-6 + 100\n")
    recorded = trace(
        tensor(SUM),
        leaf(9, WEIGHT),
        op("add", (SUM,), inputs=(WEIGHT,), nr=1, at=f"{path}:2"),
        node(0, "AddBackward0", nr=1, to=(9,)),
        backward(1, roots=(0,), at="t.py:4"),
        accumulated(9, WEIGHT),
    )
    assert listed(recorded) == []


def test_a_sentence_that_announces_lines_is_left_out_without_them():
    place = SourceLocation(filename="t.py", lineno=3, function="f", text="x = 1")
    lines = ["It ends here:", place, "Others:", place, "More:", None, "It is so."]
    assert excerpts(lines) == ["It ends here:", "    t.py:3, in f\n        x = 1", "It is so."]


def test_a_module_is_explained_by_its_worst_parameter():
    recorded = trace(leaf(9, WEIGHT), stepped(WEIGHT, gradients=0), gradient(1))
    name = next(iter(recorded.analysis.parameters[WEIGHT]))
    module = name.rpartition(".")[0]
    found = recorded.why(module)
    own = recorded.why(name)
    assert found.target == module
    assert found.steps[0].text == f"1 of 1 parameter of {module}: {own.question}"
    assert found.steps[1:] == own.steps


def test_lines_as_good_as_the_culprit_are_named_apart_from_other_causes():
    place = SourceLocation(filename="t.py", lineno=3, function="f", text="x = 1")
    step = ExplanationStep(text=ANOTHER_LINE, location=place, statement="x = 1", events=())
    other = replace(step, text="x was written")
    text = str(Explanation(target="x", question="why", steps=(), alternatives=(step, other)))
    assert text.splitlines() == [
        "x: why",
        "Or change: t.py:3",
        "       x = 1",
        "It may also be:",
        " - x was written",
        "       t.py:3",
        "           x = 1",
    ]


def test_a_search_that_fails_is_a_warning_and_the_others_answer(monkeypatch):
    def find_kept(_graph):
        raise ZeroDivisionError

    monkeypatch.setattr("autogradviz.causes.audit.find_kept", find_kept)
    with pytest.warns(AutogradvizWarning, match="find_kept failed: ZeroDivisionError"):
        audit = autogradviz.Trace(make_log()).audit()
    assert len(audit) == 0
