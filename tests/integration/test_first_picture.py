"""The first picture of a healthy step: what is open, folded and named."""

from __future__ import annotations

import contextlib
import re
from functools import cache

import pytest
import torch
from torch import nn
from training_programs import PICTURES, checkpointed_transformer, several_steps

import autogradviz
from autogradviz.render.svg.draw_graph import render_svg
from autogradviz.scene.choose_open_groups import MAX_HEIGHT_OF_RUN
from autogradviz.scene.layout.coordinates import place


@cache
def scene_of(name):
    return PICTURES[name]()._scene


def opened(scene):
    return {group.index for group in scene.groups if group.open}


def labels(scene, parent=None):
    return [group.label for group in scene.groups if parent is None or group.parent == parent]


@pytest.mark.parametrize("name", sorted(PICTURES))
def test_first_picture_fits_a_page(name):
    placement = place(scene_of(name), opened(scene_of(name)))
    assert placement.width < 1200
    assert placement.height < 1000


@pytest.mark.parametrize("name", ["transformer", "resnet", "rnn"])
def test_first_picture_is_no_higher_than_a_cell(name):
    assert place(scene_of(name), opened(scene_of(name))).height <= MAX_HEIGHT_OF_RUN


@pytest.mark.parametrize("name", sorted(PICTURES))
def test_first_picture_equals_the_golden_file(name, golden):
    picture = re.sub(r", norm [^<]*", "", render_svg(scene_of(name)))  # depends on the processor
    golden(f"first_{name}.svg", picture)


def test_both_steps_of_a_gan_are_open():
    steps = [group for group in scene_of("gan").groups if group.kind == "step"]
    assert [(step.label, step.open) for step in steps] == [("step 0", True), ("step 1", True)]


def test_unnamed_leaves_are_named_by_their_variables_or_counted():
    with autogradviz.record() as trace:
        weight = torch.rand(3, requires_grad=True)
        (weight * 2).sum().backward()
    assert [badge.label for badge in trace._scene.parameter_badges] == ["weight"]
    shown = {badge.label for badge in scene_of("rnn").parameter_badges if badge.width}
    assert shown == {"input ×2", "w_h"}  # `h @ w_h` says the name of one


def test_last_of_several_equal_steps_is_open():
    scene = several_steps()._scene
    assert {scene.groups[index].label for index in opened(scene)} >= {"steps 0–2", "step 2"}
    assert "steps 0–1" in labels(scene)


def test_the_step_whose_fold_is_shown_first_is_open():
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters())
    with autogradviz.record(model) as trace:
        for size in (2, 2, 9, 2, 2):
            model(torch.rand(size, 8)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    scene = trace._viewer_scene
    [most] = [each for each in scene.folds if each.peak_nbytes > scene.folds[0].peak_nbytes]
    assert scene.steps[most.step].number == 2
    shown = [group.label for group in scene.groups if group.open and group.kind == "step"]
    assert shown == ["step 2"]


def test_the_step_that_failed_is_open():
    model = nn.Sequential(nn.Linear(8, 8), nn.Sigmoid(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters())
    with contextlib.suppress(RuntimeError), autogradviz.record(model) as trace:
        for size in (9, 9, 2):
            hidden = model[:2](torch.rand(size, 8))
            loss = model[2](hidden).sum()
            if size == 2:
                hidden.mul_(2)
            loss.backward()
            optimizer.step()
    scene = trace._viewer_scene
    shown = [group.label for group in scene.groups if group.open and group.kind == "step"]
    assert shown == ["step 2"]


@pytest.mark.parametrize("name", sorted(PICTURES))
def test_no_gradient_flows_down(name):
    assert not any(link.reversed for group in scene_of(name).groups for link in group.links)


@pytest.mark.parametrize("name", sorted(PICTURES))
def test_closed_boxes_state_their_saved_bytes(name):
    scene = scene_of(name)
    picture = render_svg(scene)
    closed = [box.ref for box in place(scene, opened(scene)).boxes if box.kind == "group"]
    groups = [scene.groups[ref] for ref in closed]
    assert all(group.nbytes or group.shared_nbytes for group in groups)
    assert len(re.findall(r" (?:saved|shared)</text>", picture)) >= len(closed)


@pytest.mark.parametrize("name", sorted(PICTURES))
def test_no_text_of_the_picture_is_smaller_than_9_5_pixels(name):
    sizes = map(float, re.findall(r'font-size="([\d.]+)"', render_svg(scene_of(name))))
    assert min(sizes) >= 9.5


def test_transformer_opens_its_first_block_and_folds_the_others():
    scene = scene_of("transformer")
    [run] = [group for group in scene.groups if group.repeat == 12]
    first, rest = (group for group in scene.groups if group.parent == run.index)
    assert (run.label, run.path, run.open) == ("h.0–11", "h", True)
    assert (first.label, first.open) == ("h.0", True)
    assert (rest.label, rest.repeat, rest.open) == ("h.1–11", 11, False)
    assert run.nbytes > 10 * first.nbytes


def test_checkpointed_blocks_are_folded_and_say_what_they_recompute():
    scene = checkpointed_transformer()._scene
    [run] = [group for group in scene.groups if group.repeat == 4]
    assert run.checkpointed
    assert run.recomputed_nbytes > run.nbytes


def test_loop_without_modules_is_folded_by_its_lines():
    scene = scene_of("rnn")
    [loop] = [group for group in scene.groups if group.repeat == 400]
    parts = [group for group in scene.groups if group.parent == loop.index]
    assert loop.label == "for t in range(steps)"
    assert [(part.label, part.repeat, part.open) for part in parts] == [
        ("iteration 1", 1, True),
        ("iterations 2–399", 398, False),
        ("iteration 400", 1, False),
    ]
    assert [part.node_count for part in parts] == [4, 398 * 4, 4]


def test_stages_of_a_resnet_are_opened_consistently():
    stages = [g for g in scene_of("resnet").groups if re.fullmatch(r"layer[2-4]", g.label)]
    assert len(stages) == 3
    assert len({stage.open for stage in stages}) == 1


def test_list_used_in_turn_with_another_one_is_split():
    paths = [group.path for group in scene_of("unet").groups]
    assert "ups" not in paths
    assert [path for path in paths if path.startswith("convs")] == [f"convs.{i}" for i in range(4)]


def test_idle_time_is_listed():
    scene = scene_of("transformer")
    idle = scene.summary.idle_ns
    assert list(idle) == sorted(idle)
    assert all(0 <= time <= scene.summary.end_ns for time in idle)
    busy = [node.born_ns for node in scene.nodes if node.born_ns >= 0]
    for start, end in zip(idle[::2], idle[1::2], strict=True):
        assert not any(start < time < end for time in busy)
