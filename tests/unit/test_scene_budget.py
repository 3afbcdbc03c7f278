"""Plans of the budget agree with predictions and with ``fit``."""

from __future__ import annotations

import pathlib
import subprocess
import sys
from functools import partial
from itertools import groupby

import pytest
import torch
import torch.utils.checkpoint
from torch import nn

import autogradviz
from autogradviz.analysis.formatting import format_bytes
from autogradviz.scene.checkpoint_plans import name_modules


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(16, 64), nn.Linear(64, 16)

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(x)))


class Model(nn.Module):
    def __init__(self, count=4):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(count))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


def record(**options):
    model = Model()
    with autogradviz.record(model, **options) as trace:
        model(torch.rand(512, 16)).sum().backward()
    return trace


def test_plans_are_predictions_and_each_holds_less_than_the_one_before():
    trace = record()
    plans = trace._viewer_scene.budget_plans
    assert plans
    before = max(trace.analysis.memory.nbytes)
    computed = 0
    for plan in plans:
        prediction = trace.predict_memory(checkpoint=plan.modules)
        assert plan.peak_nbytes == prediction.predicted_peak < before
        assert plan.added_ns == prediction.recompute_ns
        assert plan.recomputed_nbytes >= computed
        before, computed = plan.peak_nbytes, plan.recomputed_nbytes
    whole = [plan for plan in plans if plan.modules[0] == "blocks.0"]
    assert 3 <= len(whole[-1].modules) <= whole[-1].of == 4
    for plan in whole:
        assert plan.before.strip() == "x = block(x)"
        call = "checkpoint(block, x, use_reentrant=False)"
        count = len(plan.modules)
        some = f"x = ({call} if block in tuple(self.blocks)[:{count}] else block(x))"
        assert plan.after == (f"x = {call}" if count == plan.of else some)


def test_the_last_plan_holds_least_of_all_predictions():
    trace = record()
    scene = trace._viewer_scene
    names = [f"blocks.{number}" for number in range(4)]
    all_of_kind = [names, *([f"{name}.{part}" for name in names] for part in ("up", "down"))]
    peaks = [
        trace.predict_memory(checkpoint=kind[:count]).predicted_peak
        for kind in all_of_kind
        for count in range(1, 5)
    ]
    assert scene.budget_plans[-1].peak_nbytes == min(peaks)
    [fold] = scene.folds
    best = scene.budget_plans[-1]
    assert fold.sentence.endswith(
        f"With {best.name} checkpointed, it would be {format_bytes(best.peak_nbytes)}."
    )


def test_the_time_of_a_plan_is_that_of_its_prediction():
    model = Model()
    optimizer = torch.optim.SGD(model.parameters())
    with autogradviz.record(model) as trace:
        for _ in range(3):
            model(torch.rand(64, 16)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    plans = trace._viewer_scene.budget_plans
    assert len({plan.step for plan in plans}) == 3
    for plan in plans:
        assert plan.added_ns == trace.predict_memory(checkpoint=plan.modules).recompute_ns


@pytest.mark.parametrize(
    ("modules", "of", "name"),
    [
        (["h.0.attn", "h.1.attn", "h.2.attn"], 4, "h.0–2.attn"),
        (["h.0.attn", "h.1.attn", "h.2.attn"], 3, "h.*.attn"),
        (["enc"], 1, "enc"),
        (["enc", "dec"], 2, "enc … ×2"),
    ],
)
def test_modules_of_a_plan_have_one_name(modules, of, name):
    assert name_modules(modules, of) == name


def check_plans_and_fits():
    trace = record(memory=True)
    peak = trace.memory_by_kind().peak
    plans = {plan.modules: plan for plan in trace._viewer_scene.budget_plans}
    fits = [trace.fit(share / 10 * peak.total) for share in range(9, 4, -1)]
    both = [(fitted, plans[fitted.checkpoint]) for fitted in fits if fitted.checkpoint in plans]
    assert both, (peak, fits, list(plans))
    for fitted, plan in both:
        assert (plan.before, plan.of) == (fitted.before, fitted.of)
        assert plan.after in {
            fitted.after,
            *(line[1:].strip() for line in fitted.patch.splitlines()),
        }
        assert plan.recomputed_nbytes == fitted.recomputed


def test_plan_names_the_modules_and_the_line_that_fit_names():
    # In a new process: all memory counts, also what other tests allocate on threads.
    code = "import test_scene_budget; test_scene_budget.check_plans_and_fits()"
    folder = pathlib.Path(__file__).parent
    found = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stderr


def test_nothing_is_predicted_for_a_compiled_region():
    model = torch.compile(Model(2), backend="aot_eager")
    with autogradviz.record(model) as trace:
        model(torch.rand(512, 16)).sum().backward()
    torch.compiler.reset()
    scene = trace._viewer_scene
    assert scene.budget_plans == ()
    assert scene.module_calls[0].fixed


def test_compiled_blocks_are_in_the_order_of_their_ops_before_the_loss():
    model = torch.compile(Model(3), backend="aot_eager")
    with autogradviz.record(model) as trace:
        model(torch.rand(512, 16, requires_grad=True)).square().sum().backward()
    torch.compiler.reset()
    ribbons = trace._viewer_scene.ribbons
    saved = [each.block for each in sorted(ribbons, key=lambda each: each.top)]
    read = [each.block for each in sorted(ribbons, key=lambda each: each.bottom)]
    order = [block for block, _ in groupby(saved)]
    assert order == ["blocks.0", "blocks.1", "blocks.2", ""]  # the last one is of the square
    assert [block for block, _ in groupby(read)] == order


def test_recomputed_bytes_of_a_plan_are_those_of_a_recording_that_does_it():
    plan = record()._viewer_scene.budget_plans[-1]
    model = Model()
    for name in plan.modules:
        module = model.get_submodule(name)
        module.forward = partial(
            torch.utils.checkpoint.checkpoint, module.forward, use_reentrant=False
        )
    with autogradviz.record(model) as trace:
        model(torch.rand(512, 16)).sum().backward()
    scene = trace._viewer_scene
    assert scene.summary.recomputed_nbytes == plan.recomputed_nbytes
    inside = {call.module for call in scene.module_calls if call.fixed}
    assert {f"{name}.up" for name in plan.modules} <= inside
    assert "" not in inside


class Level(Block):
    pass


class Ladder(nn.Module):
    """Levels of several kinds, which one line calls."""

    def __init__(self):
        super().__init__()
        self.down = nn.ModuleList(Level() for _ in range(3))
        self.mid = Level()
        self.up = nn.ModuleList(Level() for _ in range(3))

    def run(self, level, x):
        return level(x)

    def forward(self, x):
        for level in self.down:
            x = self.run(level, x)
        x = self.run(self.mid, x)
        for level in self.up:
            x = self.run(level, x)
        return x


def record_ladder(code=""):
    torch.manual_seed(0)
    model = Ladder()
    exec(code, {"model": model})
    with autogradviz.record(model) as trace:
        model(torch.rand(512, 16)).sum().backward()
    return trace


def test_last_plan_combines_kinds_down_to_what_all_of_them_reach():
    trace = record_ladder()
    kinds = ("down", "mid", "up")
    names = [call.module for call in trace._viewer_scene.module_calls]
    levels = [name for name in names if name.split(".")[0] in kinds and name.count(".") < 2]
    levels = [name for name in levels if name == "mid" or name[-1].isdigit()]
    assert len(levels) == 7
    plan = trace._viewer_scene.budget_plans[-1]
    assert plan.peak_nbytes <= trace.predict_memory(checkpoint=levels).predicted_peak
    assert {name.split(".")[0] for name in plan.modules} == {*kinds}
    [fold] = trace._viewer_scene.folds
    assert f"With {plan.name} checkpointed" in fold.sentence


def test_executed_code_of_a_plan_makes_the_measured_peak_the_predicted_one():
    plans = record_ladder()._viewer_scene.budget_plans
    assert len(plans) > 2
    for plan in plans:
        # The line calls modules of all kinds: no change of it is this plan.
        assert not plan.lineno
        assert max(record_ladder(plan.after).analysis.memory.nbytes) == plan.peak_nbytes


def test_recording_that_checkpoints_all_of_it_has_no_plan():
    model = Model()
    with autogradviz.record(model) as trace:
        x = torch.rand(8, 16, requires_grad=True)
        torch.utils.checkpoint.checkpoint(model, x, use_reentrant=False).sum().backward()
    peak = max(trace.analysis.memory.nbytes)
    assert all(plan.peak_nbytes < peak for plan in trace._viewer_scene.budget_plans)


def test_plans_of_a_step_are_those_of_a_recording_of_that_step_alone():
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    with autogradviz.record(model) as trace:
        for size in (128, 512, 256):
            model(torch.rand(size, 16)).sum().backward()
            optimizer.step()
    scene = trace._viewer_scene
    assert {plan.step for plan in scene.budget_plans} == {0, 1, 2}
    for step, size in enumerate((128, 512, 256)):
        with autogradviz.record(model) as alone:
            model(torch.rand(size, 16)).sum().backward()
            optimizer.step()
        own = [plan for plan in scene.budget_plans if plan.step == step]
        expected = alone._viewer_scene.budget_plans
        assert [(p.modules, p.peak_nbytes, p.recomputed_nbytes) for p in own] == [
            (p.modules, p.peak_nbytes, p.recomputed_nbytes) for p in expected
        ]
        assert [p.added_ns for p in own if p.added_ns <= 0] == []
