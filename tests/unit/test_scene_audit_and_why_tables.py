"""The audit and the stored answers of a scene."""

from __future__ import annotations

import dataclasses
from typing import get_args

import pytest
from make_log import began, leaf, make_log, node, op, parameter, tensor
from test_audit import INPUT, LOSS, PRODUCT, WEIGHT, gradient, stepped, trace

import autogradviz
from autogradviz.causes import Mechanism
from autogradviz.explanations.codes import codes
from autogradviz.scene import audit_and_why_tables as causes


def mixed():
    """Two backwards without zero_grad() and a step after each."""
    return trace(
        leaf(9, WEIGHT), gradient(1), stepped(WEIGHT), gradient(2, added=True), stepped(WEIGHT)
    )


def test_entries_have_line_effect_meaning_and_mark():
    recorded = mixed()
    scene = recorded._viewer_scene
    [entry] = recorded.audit().of("mix")
    [row] = [each for each in scene.audit_entries if each.mechanism == "mix"]
    step = scene.cause_steps[row.steps[0]]
    assert (step.text, step.filename, step.lineno) == (
        entry.effect,
        entry.location.place,
        entry.location.lineno,
    )
    assert (row.confidence, row.explanation, row.fix) == (
        entry.confidence,
        entry.explanation,
        entry.fix,
    )
    assert (row.meaning, row.glyph) == causes.MARKS["mix"]


def test_every_mechanism_has_a_meaning_and_a_mark():
    assert sorted(causes.MARKS) == sorted(get_args(Mechanism))
    assert len({glyph for _, glyph in causes.MARKS.values()}) == len(causes.MARKS)


def test_stored_answers_equal_those_of_why():
    recorded = mixed()
    scene = recorded._viewer_scene
    for answer in scene.answers:
        kind, _, name = answer.subject.partition(" ")
        target = name
        if kind == "finding":
            target = recorded.diagnose()[int(name)]
        if kind == "node":
            target = scene.nodes[int(name)].node_id
        explanation = recorded.why(target)
        rows = [scene.cause_steps[at] for at in answer.steps]
        expected = [*explanation.steps, *explanation.alternatives]
        assert [row.text for row in rows] == [step.text for step in expected]
        assert answer.alternatives == len(explanation.alternatives)
        assert answer.question == explanation.question
        assert answer.fix == explanation.fix


def test_equal_steps_are_stored_once():
    rows = mixed()._viewer_scene.cause_steps
    assert len(set(rows)) == len(rows)


def test_number_of_answers_is_bounded_and_missing_gradients_come_first(monkeypatch):
    monkeypatch.setattr(causes, "MAX_PARAMETERS", 1)
    recorded = autogradviz.Trace(
        make_log(
            began(),
            parameter(WEIGHT, "net.used"),
            parameter(INPUT, "net.unused"),
            leaf(9, WEIGHT),
            op("mul", (PRODUCT,), inputs=(WEIGHT,), nr=0),
            node(1, "MulBackward0", nr=0, to=(9,)),
            gradient(1),
        )
    )
    subjects = [answer.subject for answer in recorded._viewer_scene.answers]
    assert [each for each in subjects if each.startswith("parameter")] == ["parameter net.unused"]


def test_stored_answers_leave_out_buffers():
    recorded = autogradviz.Trace(
        make_log(
            began(),
            parameter(WEIGHT, "net.weight"),
            parameter(INPUT, "net.position_ids", buffer=True),
            leaf(9, WEIGHT),
            op("mul", (PRODUCT,), inputs=(WEIGHT, INPUT), nr=0),
            node(1, "MulBackward0", nr=0, to=(9,)),
            gradient(1),
        )
    )
    subjects = [answer.subject for answer in recorded._viewer_scene.answers]
    assert [each for each in subjects if each.startswith("parameter")] == ["parameter net.weight"]


def test_kinds_that_were_looked_for_are_those_of_rules_that_apply():
    checks = mixed()._viewer_scene.checks
    searched = [kind for each in checks for kind in each.kinds]
    title = autogradviz.explain("gradients-not-cleared").title
    assert title in next(each.kinds for each in checks if each.topic == "gradients")
    of_an_exception = autogradviz.explain("saved-tensor-mutated").title
    assert of_an_exception not in searched
    assert not {slug.replace("-", " ") for slug in codes()} & set(searched)  # sentences, not slugs
    assert len(searched) == len(set(searched))
    assert {"gradients", "writes", "memory"} <= {each.topic for each in checks}


def test_scene_of_a_picture_has_no_audit():
    recorded = mixed()
    assert not recorded._scene.summary.audited
    assert recorded._viewer_scene.summary.audited
    assert (
        dataclasses.replace(
            recorded._viewer_scene,
            summary=recorded._scene.summary,
            checks=(),
            cause_steps=(),
            audit_entries=(),
            answers=(),
            questions=(),
        )
        == recorded._scene
    )


def test_question_about_a_node_is_answered_with_its_steps_in_place():
    recorded = trace(
        tensor(INPUT, (4,)),
        op("mul", (LOSS,), inputs=(WEIGHT,), nr=1, at="t.py:3"),
        node(1, "MulBackward0", nr=1),
    )
    [drawn] = recorded._scene.nodes
    answer = recorded._answer("node 0")
    assert answer["subject"] == "node 0"
    assert answer["target"] == f"MulBackward0 #{drawn.node_id}"
    assert answer["steps"][0]["text"].startswith("MulBackward0")
    assert answer["steps"][1]["nodes"] == (0,)


def test_unknown_parameter_is_refused():
    with pytest.raises(autogradviz.errors.UnknownTargetError):
        mixed()._answer("parameter net.wieght")
