"""The answers to questions on a whole recording, for the search of the viewer."""

from __future__ import annotations

import dataclasses
import re

import make_log as m
import pytest
from test_analysis_saved_tensors import recomputed_otherwise

import autogradviz
from autogradviz.scene.schema import SceneLiveMemory, SceneStep
from autogradviz.scene.search_questions import build_questions


def scene_of(*facts):
    return autogradviz.Trace(m.make_log(*facts))._viewer_scene


def answer(scene, question):
    found = (each for each in build_questions(scene, None) if re.search(each.pattern, question))
    return next(found, None)


def plain():
    """Two storages of modules, of which backward reads one; the other is written and held."""
    return scene_of(
        m.module(1, "net.0"),
        m.module(2, "net.1"),
        m.parameter(9, "net.0.weight", module=1),
        m.tensor(1),
        m.tensor(2),
        m.op("exp", (1,), nr=0, node=10, at="t.py:2"),
        m.saved(1, 1, nr=0, node=10, slot="result"),
        m.op("sin", (2,), nr=1, node=11, at="t.py:3"),
        m.saved(2, 2, nr=1, node=11, slot="self"),
        m.node(10, "ExpBackward0", nr=0),
        m.node(11, "SinBackward0", nr=1, to=[10]),
        m.backward(),
        m.ran(11),
        m.released(2),
        m.backward_ended(),
    )


def test_the_peak_in_the_answer_is_that_of_all_views():
    scene = plain()
    found = answer(scene, "what fills memory")
    assert found.sentence.startswith("64 B held at the peak")
    assert scene.summary.peak_nbytes == 64
    assert sum(found.shares) == 1000


def test_the_peak_of_several_backwards_is_not_that_of_one_of_them():
    scene = plain()
    folds = tuple(
        dataclasses.replace(fold, peak_nbytes=16, sentence="16 B") for fold in scene.folds
    )
    found = answer(dataclasses.replace(scene, folds=folds), "what fills memory")
    assert found.sentence.startswith("64 B held at the peak, for 1 backward: ")


@pytest.mark.parametrize(
    ("question", "text"),
    [
        ("which line broke it", "net.0.weight got no gradient: no operator used them."),
        ("why did checkpoint fail", "net.0.weight got no gradient: no operator used them."),
        ("who wrote this tensor", "No tensor was written in place after"),
        ("why is this gradient none", "1 parameter got no gradient."),
        ("which module fills memory", "no module holds 64 B of 64 B at the peak."),
        ("what is still held", "32 B of saved tensors are still held at the end"),
        ("optimizer state", "Not recorded: record(memory=True)"),
        ("what changed", "0 of 2 saved tensors were written between save and use."),
    ],
)
def test_questions_have_answers(question, text):
    assert answer(plain(), question).sentence.startswith(text)


def test_a_gradient_without_a_name_has_the_parameters_without_one():
    found = answer(plain(), "why is this gradient none")
    assert found.asks == ("why no gradient: net.0.weight",)


def test_optimizers_have_their_part_of_all_memory():
    live = (
        SceneLiveMemory(kind="optimizer state", nbytes=2000),
        SceneLiveMemory(kind="parameters", nbytes=1000),
    )
    found = answer(dataclasses.replace(plain(), live_memory=live), "optimizer state")
    assert found.sentence == "Optimizers hold 2.0 kB of 3.0 kB at the peak of all memory."


def checkpointed(**summary):
    scene = autogradviz.Trace(recomputed_otherwise())._viewer_scene
    return dataclasses.replace(scene, summary=dataclasses.replace(scene.summary, **summary))


def test_recorded_checkpoints_have_the_peak_first_and_all_their_regions():
    scene = checkpointed(peak_nbytes=16, without_checkpoints_nbytes=64)
    waiting = dataclasses.replace(scene.regions[0], recomputes=0)
    scene = dataclasses.replace(scene, regions=(scene.regions[0], waiting))
    text = answer(scene, "what does checkpointing save").sentence
    assert text.startswith(
        "16 B held at the peak instead of about 64 B. "
        "2 regions keep 0 B of arguments instead of 128 B; 1 of them ran again, in "
    )


def test_checkpoints_of_several_steps_are_not_added_up():
    scene = checkpointed(without_checkpoints_nbytes=0, steps_text="2 steps")
    steps = tuple(SceneStep(number=i, start_ns=i, end_ns=i, end_seq=i, loss=None) for i in range(2))
    scene = dataclasses.replace(scene, regions=scene.regions * 2, steps=steps)
    text = answer(scene, "what does checkpointing save").sentence
    assert text.startswith("In each step, 1 region keeps 0 B of arguments instead of 64 B, ")
    assert text.endswith(" on average of the 2 steps.")


def test_what_cannot_be_predicted_is_not_called_useless():
    scene = plain()
    question = "what does checkpointing save"
    failed = (dataclasses.replace(scene.nodes[0], state="failed"), *scene.nodes[1:])
    stopped = dataclasses.replace(scene, nodes=failed, budget_plans=())
    assert answer(stopped, question).sentence.startswith("Not predicted: the step stopped at ")
    bare = dataclasses.replace(scene, budget_plans=(), module_calls=())
    assert answer(bare, question).sentence.startswith("Not predicted: a prediction needs")


def test_a_written_tensor_that_backward_did_not_reach_is_counted_with_those():
    scene = scene_of(
        m.tensor(1),
        m.tensor(2),
        m.op("exp", (1,), nr=0, node=10, at="t.py:2"),
        m.saved(1, 1, nr=0, node=10, slot="result"),
        m.op("exp", (2,), nr=1, node=11, at="t.py:3"),
        m.saved(2, 2, nr=1, node=11, slot="result"),
        m.node(10, "ExpBackward0", nr=0),
        m.node(11, "ExpBackward0", nr=1, to=[10]),
        m.op("add_", (1,), inputs=(1,), writes=(1,), at="t.py:4"),
        m.bumped("aten.add_.Tensor", 1, version=0, at="t.py:4"),
        m.backward(roots=(11,)),
        m.started(11),
        m.unpacked(2, node=11, failed=True),
        m.backward_ended(failed=True),
    )
    assert "32 B in 1 storage is not reached." in scene.folds[0].sentence
