"""Costs of lines with their calls, and steps: every sum equals that of the recording."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import autogradviz
from autogradviz.analysis.compiled_region_times import region_times
from autogradviz.analysis.flame_graph import build_flame_rows
from autogradviz.analysis.idle_time import find_idle

sys.path.insert(0, str(Path(__file__).parents[1] / "browser"))
import recordings


class Net(nn.Module):
    def __init__(self, *, checkpointed=False):
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.second = nn.Linear(8, 8)
        self.checkpointed = checkpointed

    def block(self, x):
        return torch.tanh(self.first(x)).exp()

    def forward(self, x):
        x = checkpoint(self.block, x, use_reentrant=False) if self.checkpointed else self.block(x)
        return self.second(x).sum()


def train(steps, *, checkpointed=False, **options):
    torch.manual_seed(0)
    model = Net(checkpointed=checkpointed)
    optimizer = torch.optim.Adam(model.parameters())
    kept = []
    with autogradviz.record(model, **options) as trace:
        for _ in range(steps):
            loss = model(torch.ones(4, 8, requires_grad=True))  # FORWARD
            kept.append(loss)
            loss.backward(retain_graph=True)  # BACKWARD
            optimizer.step()  # OPTIMIZER
    return trace


def marked(name):
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.endswith(f"# {name}"))


def inclusive(scene, values):
    """Return the sums of each frame and those below it, and what has no frame."""
    sums, unknown = [0] * len(scene.call_frames), 0
    for frame, value in values:
        if frame < 0:
            unknown += value
        else:
            sums[frame] += value
    for at in range(len(sums) - 1, -1, -1):
        parent = scene.call_frames[at].parent
        assert parent < at
        if parent >= 0:
            sums[parent] += sums[at]
    return sums, unknown


def outermost(scene, sums):
    return {
        frame.lineno: sums[at]
        for at, frame in enumerate(scene.call_frames)
        if frame.parent < 0 and frame.filename == __file__
    }


TRACES = {
    "train": lambda: train(2),
    "checkpointed": lambda: train(2, checkpointed=True),
    "dropped": lambda: train(4, keep_steps=2),
}
SCENES = {
    **{name: lambda record=record: record()._scene for name, record in TRACES.items()},
    "fails": recordings.failing,
    "differs": recordings.diverging,
    "reentrant": recordings.reentrant,
    "audited": recordings.audited,
}


@pytest.mark.parametrize("name", sorted(SCENES))
def test_outermost_lines_add_up_to_the_totals(name):
    scene = SCENES[name]()
    summary = scene.summary
    roots = [at for at, frame in enumerate(scene.call_frames) if frame.parent < 0]
    counted = scene.counted_storages
    for total, values in (
        (summary.saved_nbytes, ((c.call, c.nbytes) for c in counted if not c.recomputed)),
        (summary.recomputed_nbytes, ((c.call, c.nbytes) for c in counted if c.recomputed)),
        (summary.peak_nbytes, ((c.call, c.nbytes) for c in counted if c.at_peak)),
        (len(scene.nodes), ((node.call, 1) for node in scene.nodes)),
    ):
        sums, unknown = inclusive(scene, values)
        assert sum(sums[at] for at in roots) + unknown == total


@pytest.mark.parametrize("name", sorted(TRACES))
def test_times_of_calls_add_up_to_those_of_the_flame_graph(name):
    trace = TRACES[name]()
    rows = build_flame_rows(trace.analysis, "time")
    for phase in ("forward", "backward", "recompute", "optimizer"):
        calls = sum(row.ns for row in trace._scene.call_times if row.phase == phase)
        frames = [row.value for row in rows if row.phase == phase]
        assert calls == pytest.approx(sum(frames), rel=0.01, abs=2_000)


@pytest.mark.parametrize("name", sorted(TRACES))
def test_what_has_no_line_of_its_own_is_of_the_line_that_called_backward(name):
    trace = TRACES[name]()
    scene = trace._scene
    assert [row for row in scene.call_times if row.origin < 0] == []
    sums = [
        row for row in build_flame_rows(trace.analysis, "time") if row.label == "AccumulateGrad"
    ]
    assert {(row.filename, row.lineno) for row in sums} == {(__file__, marked("BACKWARD"))}


def test_compilations_of_a_backward_are_no_time_of_its_nodes():
    scene = recordings.compiled()
    compiles = [s for s in scene.spans if s.kind == "compile" and not s.depth]
    nodes = [s for s in scene.spans if s.kind == "node"]
    inside = sum(
        c.end_ns - c.start_ns
        for c in compiles
        if any(n.start_ns <= c.start_ns and c.end_ns <= n.end_ns for n in nodes)
    )
    assert inside > 0
    whole = sum(s.end_ns - s.start_ns for s in scene.spans if s.kind == "backward")
    backward = [row.ns for row in scene.call_times if row.phase == "backward"]
    assert sum(backward) <= whole - inside


def test_user_lines_have_what_they_call():
    scene = train(2, checkpointed=True)._scene
    saved, _ = inclusive(scene, ((c.call, c.nbytes) for c in scene.counted_storages))
    lines = outermost(scene, saved)
    assert lines[marked("FORWARD")] == scene.summary.saved_nbytes + scene.summary.recomputed_nbytes
    assert lines.get(marked("BACKWARD"), 0) == 0
    times, _ = inclusive(scene, ((row.call, row.ns) for row in scene.call_times))
    by_phase = {
        phase: sum(row.ns for row in scene.call_times if row.phase == phase)
        for phase in ("forward", "backward", "recompute", "optimizer")
    }
    lines = outermost(scene, times)
    assert lines[marked("BACKWARD")] >= by_phase["backward"] + by_phase["recompute"]
    assert lines[marked("OPTIMIZER")] == by_phase["optimizer"] > 0
    assert lines[marked("FORWARD")] > 0
    assert not scene.call_frames[0].installed


def test_recomputation_is_a_cost_of_the_line_that_called_checkpoint():
    scene = train(2, checkpointed=True)._scene
    again = [(row.origin, row.ns) for row in scene.call_times if row.phase == "recompute"]
    times, _ = inclusive(scene, again)
    lines = outermost(scene, times)
    assert lines[marked("FORWARD")] == sum(ns for _, ns in again) > 0
    assert lines.get(marked("BACKWARD"), 0) == 0


def test_each_recomputation_of_a_line_is_counted():
    layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))
    with autogradviz.record(layers) as trace:
        x = torch.ones(4, 8, requires_grad=True)
        for layer in layers:
            x = checkpoint(layer, x, use_reentrant=False)
        x.sum().backward()
    scene = trace._scene
    rows = [row for row in scene.call_times if row.phase == "recompute"]
    function = "test_each_recomputation_of_a_line_is_counted"
    own = [row.count for row in rows if scene.call_frames[row.origin].function == function]
    assert own == [2] * len(layers)  # of each module: its recomputation, and its op


def test_callers_of_a_compiled_region_have_its_bytes():
    scene = recordings.compiled()
    counted = [each for each in scene.counted_storages if each.lineno]
    roots = {root_of(scene, each.call) for each in counted}
    assert len(counted) > 1
    assert {scene.call_frames[at].function for at in roots} == {"record"}


def test_time_of_a_compiled_region_is_that_of_its_line_and_not_idle():
    model = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Dropout(0.1))
    compiled = torch.compile(model, backend="aot_eager")
    with autogradviz.record(model) as trace:
        compiled(torch.rand(64, 64)).sum().backward()
    runs = region_times(trace.analysis)
    assert runs
    assert all(run.end_ns > run.start_ns for run in runs)
    idle = find_idle(trace.analysis)
    for run in runs:
        for start, end in zip(idle[::2], idle[1::2], strict=True):
            assert end <= run.start_ns or start >= run.end_ns
    forward = sum(row.ns for row in trace._viewer_scene.call_times if row.phase == "forward")
    phases = trace.phase_times()
    assert sum(run.own_ns for run in runs) <= forward <= phases.forward_ns


def test_a_compiled_step_has_one_time_and_one_number_of_bytes_in_all_tables():
    torch.compiler.reset()
    blocks = [nn.Sequential(nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 32)) for _ in range(3)]
    model = nn.Sequential(*blocks)
    compiled = torch.compile(model, backend="aot_eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with autogradviz.record(model) as trace:
        for _ in range(3):
            optimizer.zero_grad()
            compiled(torch.rand(16, 32)).sum().backward()
            optimizer.step()
    scene, runs = trace._viewer_scene, region_times(trace.analysis)
    assert len(runs) == len(scene.folds) == 3
    own = {run.node_id: run.own_ns for run in runs}
    nodes = [each for each in scene.nodes if each.node_id in own]
    assert {each.node_id: each.forward_ns for each in nodes} == own
    (norms,) = [fact.text for fact in scene.facts if "norms" in fact.text]
    assert norms.endswith(" in step 2")
    times = trace.phase_times()
    assert sum(fold.forward_ns for fold in scene.folds) == pytest.approx(times.forward_ns, abs=3)
    assert sum(fold.backward_ns for fold in scene.folds) == pytest.approx(times.backward_ns, abs=3)
    for fold, run in zip(scene.folds, runs, strict=True):
        ribbons = [each for each in scene.ribbons if each.fold == fold.index]
        ops = sum(each.forward_ns for each in ribbons)
        assert run.own_ns <= ops <= fold.forward_ns
        in_order = [each.block for each in sorted(ribbons, key=lambda each: each.waist)]
        changes = [a for a, b in zip(in_order, [*in_order[1:], None], strict=True) if a != b]
        assert len(changes) == len(set(changes))  # each block is in one place


def root_of(scene, frame):
    while scene.call_frames[frame].parent >= 0:
        frame = scene.call_frames[frame].parent
    return frame


def test_steps_are_the_first_level_of_groups():
    scene = train(3)._scene
    assert [step.number for step in scene.steps] == [0, 1, 2]
    assert all(a.end_ns == b.start_ns for a, b in zip(scene.steps, scene.steps[1:], strict=False))
    assert [step.loss is not None for step in scene.steps] == [True] * 3
    top = [(group.kind, group.label) for group in scene.groups if group.depth == 1]
    assert top == [("repeat", "steps 0–2")] or ("step", "step 0") in {
        (group.kind, group.label) for group in scene.groups
    }
    for group in scene.groups:
        if group.kind == "step":
            step = next(each for each in scene.steps if group.label == f"step {each.number}")
            around = {group.index}
            for other in scene.groups:
                around |= {other.index} if other.parent in around else set()
            born = [node.born_ns for node in scene.nodes if node.group in around]
            assert born
            assert all(step.start_ns <= time <= step.end_ns for time in born)


def test_steps_that_were_dropped_count_in_the_peak():
    trace = train(5, keep_steps=2)
    scene, sizes = trace._scene, trace.saved_bytes()
    assert [step.number for step in scene.steps] == [3, 4]
    assert (scene.summary.older_nbytes, scene.summary.older_steps) == (sizes.older, 3)
    assert sizes.older > 0
    assert "held at peak" in scene.summary.subtitle


def test_what_follows_the_last_step_is_a_step():
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with autogradviz.record(model) as trace:
        model(torch.ones(4, 8)).backward()
        optimizer.step()
        model(torch.ones(4, 8))
    steps = trace.analysis.steps
    assert [(step.number, step.ended) for step in steps] == [(0, True), (1, False)]
    assert steps.at_ns(trace.analysis.end_ns) == 1
