"""The fold of real steps: its bytes are those of the recording at every event."""

from __future__ import annotations

import re
from collections import Counter
from contextlib import nullcontext
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn import functional
from torch.utils.checkpoint import CheckpointError, checkpoint

import autogradviz
from autogradviz.analysis.flame_graph import backward_times, build_flame_rows
from autogradviz.render.svg.saved_memory_fold import render_fold_svg
from autogradviz.render.widget import HEIGHT, HEIGHT_OF_FOLD
from autogradviz.scene import saved_memory_fold
from autogradviz.scene.saved_memory_fold import FEW_RIBBONS, MAX_RIBBONS, SCALE


@pytest.mark.parametrize("prepare", [False, True])
def test_the_time_of_the_forward_is_that_of_the_timeline(prepare):
    model = nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.Linear(4, 4))
    with autogradviz.record(model) as trace:
        x = torch.rand(2, 4) if prepare else torch.ones(2, 4)  # not a part of the forward
        model(x).sum().backward()
    [forward] = [span for span in trace.analysis.timeline.spans if span.kind == "forward"]
    [module] = [s for s in trace.analysis.timeline.spans if s.kind == "module" and not s.depth]
    assert forward.start_ns == module.start_ns
    scene = trace._viewer_scene
    idle = scene.summary.idle_ns
    without = sum(
        max(0, min(end, forward.end_ns) - max(start, forward.start_ns))
        for start, end in zip(idle[::2], idle[1::2], strict=True)
    )
    [fold] = scene.folds
    assert fold.forward_ns == forward.end_ns - forward.start_ns - without
    in_ops = sum(row.ns for row in scene.call_times if row.phase == "forward")
    assert 0 < in_ops <= fold.forward_ns


class Block(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(functional.gelu(self.up(x)))


def record(step, model=None):
    with autogradviz.record(model) as trace:
        step()
    return trace


def of_blocks(*, checkpointed=False, depth=3):
    model = nn.ModuleList(Block() for _ in range(depth))

    def step():
        x = torch.ones(4, 8)
        for block in model:
            x = checkpoint(block, x, use_reentrant=False) if checkpointed else block(x)
        x.square().mean().backward()

    return record(step, model)


def test_upper_edges_waists_and_lower_edges_cover_the_step():
    trace = of_blocks()
    scene = trace._viewer_scene
    (fold,) = scene.folds
    ribbons = scene.ribbons
    assert fold.peak_nbytes == trace.saved_bytes().at_peak
    assert re.fullmatch(
        r"2\.0 kB held at the peak, 1\.9 kB of it by test_fold_of_steps\.py:\d+\. "
        r"With 0–2 checkpointed, it would be 896 B\.",
        fold.sentence,
    )
    ops = SCALE * sum(ribbon.forward_ns for ribbon in ribbons) / fold.forward_ns
    for edge, end in (("top", ops), ("waist", SCALE)):
        extents = [getattr(ribbon, edge) for ribbon in ribbons]
        assert (extents[0][0], extents[-1][1]) == (0, pytest.approx(end, abs=1))
        assert [high for _, high in extents[:-1]] == [low for low, _ in extents[1:]]
    widths = [high - low for low, high in (ribbon.waist for ribbon in ribbons)]
    total = sum(ribbon.nbytes for ribbon in ribbons)
    assert widths == pytest.approx([SCALE * ribbon.nbytes / total for ribbon in ribbons], abs=2)
    reads = sorted(ribbons, key=lambda ribbon: ribbon.bottom)
    assert [each.read_ns for each in reads] == sorted((e.read_ns for e in reads), reverse=True)
    assert {ribbon.block for ribbon in ribbons} == {"0", "1", "2", ""}
    assert sum(ribbon.forward_ns for ribbon in ribbons) <= fold.forward_ns
    assert sum(ribbon.backward_ns for ribbon in ribbons) <= fold.backward_ns


@pytest.mark.parametrize("checkpointed", [False, True])
def test_a_block_has_the_time_of_its_own_ops_and_nodes(checkpointed):
    trace = of_blocks(checkpointed=checkpointed)
    ops, nodes = Counter(), Counter()
    for row in build_flame_rows(trace.analysis, "time"):
        into = {"forward": ops, "backward": nodes, "recompute": nodes}.get(row.phase, Counter())
        into[row.module.partition(".")[0]] += row.value
    forward, backward = Counter(), Counter()
    for ribbon in trace._viewer_scene.ribbons:
        forward[ribbon.block] += ribbon.forward_ns
        backward[ribbon.block] += ribbon.backward_ns
    assert set(forward) == set("012") | {""}
    for block in "012":
        assert (forward[block], backward[block]) == (ops[block], nodes[block])


@pytest.mark.parametrize("checkpointed", [False, True])
def test_edges_are_as_wide_as_the_times_of_blocks(checkpointed):
    ribbons = of_blocks(checkpointed=checkpointed)._viewer_scene.ribbons
    for edge, time in (("top", "forward_ns"), ("bottom", "backward_ns")):
        ends = [ribbon for ribbon in ribbons if getattr(ribbon, edge)]
        extents = [getattr(ribbon, edge) for ribbon in ends]
        total = sum(getattr(ribbon, time) for ribbon in ribbons)
        whole = max(high for _, high in extents) - min(low for low, _ in extents)
        for ribbon, (low, high) in zip(ends, extents, strict=True):
            assert high - low == pytest.approx(whole * getattr(ribbon, time) / total, abs=2)


@pytest.mark.parametrize("times", [(25, 25, 1), (4, 24, 11), (17, 30, 14)])
def test_lower_edges_cover_the_step_whatever_the_times(monkeypatch, times):
    # Their shares, added as floats, exceed one.
    def chosen(analysis):
        last = {module: at for module, _, at, _ in backward_times(analysis) if module}
        second = 1_000_000_000
        return [(name, None, at, second * times[int(name[0])]) for name, at in last.items()]

    monkeypatch.setattr(saved_memory_fold, "backward_times", chosen)
    ends = [end for ribbon in of_blocks()._viewer_scene.ribbons for end in ribbon.bottom]
    assert (min(ends), max(ends)) == (0, SCALE)


@pytest.mark.parametrize("edge", ["forward", "backward"])
def test_the_svg_names_blocks_and_the_time_between_ops(edge):
    scene = of_blocks()._viewer_scene
    (fold,) = scene.folds
    of_edge = [bar for bar in scene.fold_bars if bar.edge == edge]
    half = SCALE // 2
    block = replace(of_edge[0], kind="block", block="h.0", start=0, end=half, ns=30_000_000)
    rest = replace(of_edge[0], kind="between", block="", start=half, end=SCALE, ns=70_000_000)
    drawn = render_fold_svg(replace(scene, fold_bars=(block, rest)), fold)
    assert re.findall(r">((?:h\.0|between ops) · [^<]*)<", drawn) == [
        "h.0 · 30.0 ms", "between ops · 70.0 ms",
    ]  # fmt: skip


class Frozen(nn.Module):
    """A model whose encoder saves nothing, and whose decoder saves."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.ModuleList(nn.Linear(8, 8).requires_grad_(False) for _ in range(2))
        self.decoder = nn.Sequential(nn.Linear(8, 8), nn.Tanh())

    def forward(self, x):
        for layer in self.encoder:
            x = layer(x).relu()
        return self.decoder(x)


@pytest.mark.parametrize("named", [True, False])
def test_blocks_that_save_nothing_have_bars_and_the_rest_is_that_of_the_timeline(named):
    model = Frozen()
    with autogradviz.record(*[model] * named) as trace:
        model(torch.ones(4, 8)).sum().backward()
    scene = trace._viewer_scene
    (fold,) = scene.folds
    bars = [bar for bar in scene.fold_bars if bar.edge == "forward"]
    named_bars = [bar for bar in bars if bar.block]
    assert [bar.block for bar in named_bars] == ["encoder.0", "encoder.1", "decoder.0", "decoder.1"]
    assert {ribbon.block for ribbon in scene.ribbons} == {"decoder.0", "decoder.1"}
    for edge, whole in (("forward", fold.forward_ns), ("backward", fold.backward_ns)):
        own = [bar for bar in scene.fold_bars if bar.edge == edge]
        ops = sum(row.ns for row in scene.call_times if row.phase == edge)
        between = [bar.ns for bar in own if bar.kind == "between"]
        assert between == [pytest.approx(whole - ops, abs=9)]
        assert all(first.end <= second.start for first, second in pairwise(bars))
        # An edge is as wide as its time.
        for bar in own:
            assert bar.end - bar.start == pytest.approx(SCALE * bar.ns / whole, abs=2)


def test_ops_of_an_earlier_forward_are_not_of_the_step():
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.ones(4, 8)
    with autogradviz.record(model) as trace:
        for _ in range(2):
            model(x).sum().backward()
            optimizer.step()
            with torch.no_grad():
                model(x)
            optimizer.zero_grad()
    scene = trace._viewer_scene
    for fold in scene.folds:
        own = [bar for bar in scene.fold_bars if bar.fold == fold.index and bar.edge == "forward"]
        assert sum(bar.ns for bar in own) == fold.forward_ns


def test_the_block_in_which_recomputation_stopped_has_its_time():
    class Counting(Block):
        calls = 0

        def forward(self, x):
            Counting.calls += 1
            return super().forward(x).sin() if Counting.calls == 2 else super().forward(x)

    model = nn.ModuleList(Counting() for _ in range(3))

    def step():
        x = torch.ones(4, 8)
        for block in model:
            x = checkpoint(block, x, use_reentrant=False)
        x.sum().backward()

    with pytest.raises(CheckpointError), autogradviz.record(model) as trace:
        step()
    ribbons = trace._viewer_scene.ribbons
    entered = {ribbon.block for ribbon in ribbons if ribbon.bottom}
    assert entered == {"1", "2"}
    assert all(ribbon.backward_ns for ribbon in ribbons if ribbon.block == "1")


def test_a_checkpoint_is_a_gap_that_backward_fills():
    scene = of_blocks(checkpointed=True)._viewer_scene
    again = [ribbon for ribbon in scene.ribbons if ribbon.recomputed]
    arguments = [ribbon for ribbon in scene.ribbons if ribbon.kind == "argument"]
    assert [ribbon.block for ribbon in arguments] == ["0", "1", "2"]
    assert {ribbon.block for ribbon in again} == {"0", "1", "2"}
    (fold,) = scene.folds
    assert all(ribbon.saved_ns > fold.turn_ns for ribbon in again)
    assert sum(ribbon.nbytes for ribbon in again) == 1536
    assert re.fullmatch(
        r"896 B held at the peak instead of about 2\.0 kB, for [\d.]+ [mµ]s of recomputation\. "
        r"1\.5 kB recomputed in this backward, in all\.",
        fold.sentence,
    )


def test_the_argument_of_a_checkpoint_is_not_recomputed():
    scene = of_blocks(checkpointed=True)._viewer_scene
    arguments = {
        at for at, each in enumerate(scene.storages) if "checkpoint argument" in each.slots
    }
    assert arguments
    kinds = {at: {e.kind for e in scene.storage_events if e.storage == at} for at in arguments}
    assert not any("recomputed" in found for found in kinds.values())
    others = {event.storage for event in scene.storage_events if event.kind == "recomputed"}
    assert others


def test_each_step_says_what_checkpoints_save():
    model = nn.ModuleList(Block() for _ in range(3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step():
        for _ in range(2):
            x = torch.ones(4, 8)
            for block in model:
                x = checkpoint(block, x, use_reentrant=False)
            x.square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()

    folds = record(step, model)._viewer_scene.folds
    assert len(folds) == 2
    for number, fold in enumerate(folds):
        assert f"of step {number} instead of about 2.0 kB, for" in fold.sentence


def test_the_peak_without_checkpoints_is_that_of_the_step_without_them():
    whole = of_blocks(depth=4).saved_bytes().at_peak
    scene = of_blocks(checkpointed=True, depth=4)._viewer_scene
    summary = scene.summary
    assert summary.without_checkpoints_nbytes == whole > summary.peak_nbytes
    without = scene.memory_without_checkpoints
    assert max(point.nbytes for point in without) == whole
    assert [point.time_ns for point in without] == sorted(point.time_ns for point in without)
    assert without[-1].nbytes == 0
    assert of_blocks()._viewer_scene.memory_without_checkpoints == ()
    assert of_blocks()._viewer_scene.summary.without_checkpoints_nbytes == 0


def test_a_leak_has_no_end():
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    kept = []

    def step():
        for _ in range(3):
            optimizer.zero_grad()
            kept.append(model(torch.rand(2, 4)).tanh())
            model(torch.rand(2, 4)).tanh().sum().backward()
            optimizer.step()

    scene = record(step, model)._viewer_scene
    assert [fold.step for fold in scene.folds] == [0, 1, 2]
    for fold in scene.folds:
        states = [r.state for r in scene.ribbons if r.fold == fold.index]
        assert sorted(states) == ["kept", "kept", "read", "read"]
        assert "never read, and still held at the end" in fold.sentence
    assert all(not r.bottom for r in scene.ribbons if r.state == "kept")


def test_what_a_write_made_stale_is_marked_at_its_height():
    def step():
        x = torch.rand(64, requires_grad=True)
        y = x.exp()
        z = y * 2
        y.mul_(2)
        with pytest.raises(RuntimeError):
            z.sum().backward()

    scene = record(step)._viewer_scene
    (broken,) = [ribbon for ribbon in scene.ribbons if ribbon.state == "broken"]
    assert 0 <= broken.written < SCALE
    assert broken.written_by.startswith("mul_ ")


def test_each_backward_has_its_fold():
    x = torch.rand(4, requires_grad=True)
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))

    def two_losses():
        h = model(x)
        h.sum().backward(retain_graph=True)
        h.square().sum().backward()

    def named_losses():
        h = model(x)
        loss_d, loss_g = h.sum(), h.square().sum()
        loss_d.backward(retain_graph=True)
        loss_g.backward()

    def double_backward():
        (grad,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        grad.norm().backward()

    def micro_batches():
        for _ in range(3):
            model(x).square().sum().backward()

    def no_backward():
        return model(x)

    outputs = []
    # Each is a step of its own.
    assert [f.label for f in record(two_losses)._viewer_scene.folds] == ["backward", "backward"]
    first, second = record(named_losses)._viewer_scene.folds
    assert [first.label, second.label] == ["loss_d", "loss_g"]
    assert "held at the peak of step 0, all of it by " in first.sentence  # of its one backward
    assert len(record(double_backward)._viewer_scene.folds) == 2
    assert len(record(micro_batches)._viewer_scene.folds) == 3
    with autogradviz.record(model) as trace:
        outputs.append(no_backward())
    scene = trace._viewer_scene
    (fold,) = scene.folds
    assert (fold.turn_ns, fold.backward_ns) == (-1, 0)
    assert {ribbon.state for ribbon in scene.ribbons} == {"waiting"}
    assert fold.sentence.endswith("No backward ran after it.")


def test_backwards_of_one_name_in_one_step_are_counted():
    x = torch.rand(4)
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def accumulated():
        optimizer.zero_grad()
        for _ in range(2):
            loss = model(x).square().sum()
            loss.backward()
        optimizer.step()

    first, second = record(accumulated, model)._viewer_scene.folds
    assert [first.label, second.label] == ["loss, 1 of 2", "loss, 2 of 2"]


def test_what_hooks_copy_leaves_the_fold():
    x = torch.rand(64, requires_grad=True)

    def step():
        pair = (lambda t: t.detach().clone().numpy(), torch.from_numpy)
        with saved_tensors_hooks(*pair):
            y = x.exp().sin()
        y.sum().backward()

    trace = record(step)
    (ribbon,) = trace._viewer_scene.ribbons
    assert (ribbon.elsewhere, ribbon.members, ribbon.nbytes) == (True, (), 256)
    assert trace._viewer_scene.folds[0].peak_nbytes == 0


def test_a_long_loop_is_joined_and_loses_no_byte():
    cell = nn.RNNCell(4, 4)

    def step():
        h = torch.zeros(2, 4)
        for _ in range(300):
            h = cell(torch.ones(2, 4), h)
        h.sum().backward()

    trace = record(step, cell)
    scene = trace._viewer_scene
    assert MAX_RIBBONS // 4 < len(scene.ribbons) <= MAX_RIBBONS
    assert sum(ribbon.nbytes for ribbon in scene.ribbons) == trace.saved_bytes().saved
    members = sorted(at for ribbon in scene.ribbons for at in ribbon.members)
    assert members == list(range(len(scene.counted_storages)))


def test_pieces_of_a_loop_have_the_names_of_its_modules():
    model = nn.ModuleDict({"cell": nn.RNNCell(4, 4), "head": nn.Tanh()})

    def step():
        h, outputs = torch.zeros(2, 4), []
        for _ in range(300):
            h = model["cell"](torch.ones(2, 4), h)
            outputs.append(model["head"](h))
        torch.stack(outputs).sum().backward()

    ribbons = record(step, model)._viewer_scene.ribbons
    assert {each.block for each in ribbons[:50]} == {"cell, head"}


def test_pictures_of_the_fold_are_svg(tmp_path):
    trace = of_blocks()
    view = trace.fold()
    assert repr(view) == f"<FoldView of {trace.flame_graph()!r:.0}{view!r:.0}" or "held" in repr(
        view
    )
    view.svg(tmp_path / "fold.svg")
    text = (tmp_path / "fold.svg").read_text()
    assert text == view.svg()
    assert view.sentence.rstrip(".") in text
    assert view.svg(theme="dark") != text
    with autogradviz.record() as empty:
        pass
    with pytest.raises(ValueError, match="No tensor was saved"):
        empty.fold().svg()


def test_the_cell_of_a_healthy_step_is_as_high_as_the_fold_alone():
    x = torch.rand(3, requires_grad=True)
    with autogradviz.record() as healthy:
        y = x
        for _ in range(FEW_RIBBONS):
            y = y.exp()
        y.sum().backward()
    assert healthy._cell_widget().height == HEIGHT_OF_FOLD
    assert healthy.widget().height == HEIGHT
    with pytest.raises(RuntimeError), autogradviz.record() as failing:
        y = x.exp()
        y.mul_(2)
        y.sum().backward()
    assert failing._cell_widget().height == HEIGHT
    with autogradviz.record() as unsaved:
        (x + 1).sum().backward()
    assert unsaved._cell_widget().height == HEIGHT


@pytest.mark.parametrize("way", ["few", "many", "checkpointed", "offloaded"])
def test_a_step_with_few_ribbons_opens_on_the_graph(way):
    x = torch.rand(3, requires_grad=True)
    pair = (lambda t: t.detach().clone().numpy(), torch.from_numpy)
    hooks = saved_tensors_hooks(*pair) if way == "offloaded" else nullcontext()
    with autogradviz.record() as trace, hooks:
        y = x
        for _ in range(FEW_RIBBONS - (way != "many")):
            y = y.exp()
        if way == "checkpointed":
            y = checkpoint(torch.tanh, y, use_reentrant=False)
        y.sum().backward()
    scene = trace._viewer_scene
    assert scene.ribbons
    assert scene.summary.fold_first == (way != "few")
    assert trace._cell_widget().height == (HEIGHT if way == "few" else HEIGHT_OF_FOLD)


def test_graph_and_fold_count_a_tensor_of_two_losses_alike():
    """A storage is one ribbon, of the backward that reads it first; the others share it."""
    torch.manual_seed(0)
    generator, critic = nn.Linear(8, 64), nn.Linear(64, 1)
    with autogradviz.record() as trace:
        fake = generator(torch.randn(16, 8))
        loss_d = functional.softplus(critic(fake.detach())).mean()
        loss_d.backward()
        loss_g = functional.softplus(-critic(fake)).mean()
        loss_g.backward()
    scene = trace._viewer_scene
    graphs = [(each.nbytes, each.shared_nbytes) for each in scene.groups if each.parent == 0]
    first, second = scene.folds
    assert first.shared_nbytes == 0
    assert second.shared_nbytes == fake.nbytes
    assert graphs == [(fold.nbytes, fold.shared_nbytes) for fold in scene.folds]
    assert "4.1 kB more are kept for an earlier backward too" in second.sentence


@pytest.mark.parametrize("checkpointed", [False, True])
def test_a_block_has_the_time_of_its_modules_in_the_fold_and_in_the_timeline(checkpointed):
    model = nn.ModuleList(Block() for _ in range(3))

    def step():
        x = torch.ones(4, 8)
        for block in model:
            x = checkpoint(block, x, use_reentrant=False) if checkpointed else block(x)
        x.sum().backward()

    scene = record(step, model)._viewer_scene
    in_fold, in_modules = Counter(), Counter()
    for ribbon in scene.ribbons:
        in_fold[ribbon.block, "forward"] += ribbon.forward_ns
        in_fold[ribbon.block, "backward"] += ribbon.backward_ns
    for row in scene.call_times:
        phase = "backward" if row.phase == "recompute" else row.phase
        in_modules[row.module.partition(".")[0], phase] += row.ns
    for number in "012":
        for phase in ("forward", "backward"):
            assert in_fold[number, phase] == pytest.approx(in_modules[number, phase], abs=9)


def test_times_belong_to_modules_and_lines():
    model = nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.Linear(4, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def steps():
        for _ in range(2):
            model(torch.ones(2, 4)).sum().backward()
            optimizer.step()

    scene = record(steps, model)._viewer_scene
    lines = {row.module: set() for row in scene.call_times}
    for row in scene.call_times:
        if row.origin >= 0:
            lines[row.module].add(scene.call_frames[row.origin].lineno)
    assert set(lines) == {"0", "1", "2", ""}
    call, optimize = sorted(set().union(*lines.values()))
    assert [lines[name] for name in "012"] == [{call}] * 3
    assert lines[""] == {call, optimize}


def test_a_storage_that_several_backwards_read_is_of_the_lines_of_each():
    values, weight = torch.rand(2, 3), torch.rand(3, 3, requires_grad=True)
    with autogradviz.record() as trace:
        for _ in range(2):
            (values @ weight).exp().sum().backward()
    scene = trace._scene
    first, second = scene.folds
    assert first.shared == ()
    [shared] = second.shared
    assert scene.counted_storages[shared].nbytes == second.shared_nbytes == values.nbytes
    assert any(shared in each.members for each in scene.ribbons if each.fold == first.index)
