"""Predicted effect of checkpointing and offloading, compared with recordings that really do it."""

from __future__ import annotations

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd.graph import save_on_cpu
from torch.utils.checkpoint import checkpoint
from training_programs import Denoiser, ResNet, Transformer, UNet

import autogradviz
from autogradviz.analysis.flame_graph import build_flame_rows, build_frames
from autogradviz.analysis.idle_time import busy_time
from autogradviz.analysis.predict_memory import CHECKPOINT_NS, HOOKS_NS


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.out = nn.GRUCell(16, 32), nn.Linear(32, 4)

    def forward(self, x):
        h = torch.zeros(x.shape[1], 32)
        for row in x:
            h = self.cell(row, h)
        return self.out(h)


class Autoencoder(nn.Module):
    """Most layers save their result, so the recomputation makes copies of what others hold."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64), nn.Sigmoid())
        self.dropout = nn.Dropout(0.2)
        self.decoder = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64))

    def forward(self, x):
        return self.decoder(self.dropout(self.encoder(x)))


TOKENS = torch.arange(64).reshape(2, 32)
IMAGE = torch.rand(2, 3, 16, 16)
CASES = {
    "blocks": (partial(Transformer, 4), (TOKENS,), ("h.*",)),
    "attention": (partial(Transformer, 4), (TOKENS,), ("h.*.attn",)),
    "resnet": (ResNet, (IMAGE,), ("layer1", "layer2", "layer3")),
    "unet": (UNet, (torch.rand(1, 3, 32, 32),), ("downs.*", "convs.*")),
    "diffusion": (Denoiser, (IMAGE, torch.rand(2)), ("down.*", "up.*")),
    "recurrent": (Recurrent, (torch.rand(20, 4, 16),), ("cell",)),
    "autoencoder": (Autoencoder, (torch.rand(32, 64),), ("encoder", "dropout")),
}


def record(model, inputs):
    torch.manual_seed(0)
    with autogradviz.record(model) as trace:
        model(*inputs).square().sum().backward()
    return trace


def surround(forward, kind):
    def checkpointed(*args):
        return checkpoint(forward, *args, use_reentrant=False)

    def offloaded(*args):
        with save_on_cpu(pin_memory=True):  # which copies on the CPU too
            return forward(*args)

    return checkpointed if kind == "checkpoint" else offloaded


@pytest.fixture(scope="module", params=sorted(CASES))
def case(request):
    factory, inputs, patterns = CASES[request.param]
    torch.manual_seed(0)
    return factory, inputs, patterns, record(factory(), inputs)


@pytest.mark.one_in(4, reason="trains each model twice")
@pytest.mark.parametrize("kind", ["checkpoint", "offload"])
def test_prediction_is_within_a_tenth_of_the_model_that_does_it(case, kind):
    factory, inputs, patterns, trace = case
    prediction = trace.predict_memory(**{kind: patterns})
    torch.manual_seed(0)
    model = factory()
    for name in getattr(prediction, kind):
        module = model.get_submodule(name)
        module.forward = surround(module.forward, kind)
    real = record(model, inputs)
    assert prediction.peak == trace.saved_bytes().at_peak
    freed = prediction.peak - real.saved_bytes().at_peak
    assert freed > 0
    assert prediction.freed == pytest.approx(freed, rel=0.1)
    if kind == "checkpoint":
        assert prediction.recomputed == pytest.approx(real.saved_bytes().recomputed, rel=0.1)
    copied = sum(s.tensor.nbytes for s in real.saved_tensors() if s.copied)
    assert prediction.copied == pytest.approx(copied, rel=0.1)
    assert (prediction.recompute_ns > 0) == (kind == "checkpoint")
    assert prediction.copy_ns == round(2 * prediction.copied / 12e9 * 1e9)


def test_frames_add_up_to_the_peak_and_to_the_time_of_the_recording(case):
    analysis = case[-1].analysis
    for merge in (False, True):
        memory = build_frames(build_flame_rows(analysis, "memory"), merge=merge)
        assert memory.value == case[-1].saved_bytes().at_peak
        waiting = [memory]
        while waiting:
            frame = waiting.pop()
            parts = list(frame.children.values())
            assert not parts or sum(part.value for part in parts) == frame.value
            waiting += parts
    phases = {key[1]: each.value for key, each in time_phases(analysis).items()}
    forward = sum(op.duration_ns for op in analysis.ops if op.phase == "forward")
    nodes = sum(node.duration_ns for node in analysis.graph.nodes.values())
    seeds = seeding_time(analysis)
    assert phases["forward"] == forward - seeds
    assert phases["backward"] == nodes + seeds


def seeding_time(analysis):
    """The time in which ``backward()`` computes the gradient that it begins with."""
    return sum(op.duration_ns for op in analysis.ops if op.name == "ones_like")


def time_phases(analysis):
    return build_frames(build_flame_rows(analysis, "time")).children


def test_time_of_recomputations_is_that_of_the_timeline():
    model = Transformer(2, checkpointed=True)
    trace = record(model, (TOKENS,))
    phases = {key[1]: each.value for key, each in time_phases(trace.analysis).items()}
    runs = [run for region in trace.checkpoints() for run in region.recomputations]
    assert phases["recompute"] == sum(run.duration_ns for run in runs)
    spans = [span for span in trace.analysis.timeline.spans if span.kind == "node"]
    total = sum(span.end_ns - span.start_ns for span in spans)
    assert phases["backward"] == total - phases["recompute"] + seeding_time(trace.analysis)
    labels = trace.flame_graph("memory").svg()
    assert "checkpoint argument" in labels
    assert trace.flame_graph("time").svg(theme="dark").startswith("<svg")


def test_recomputation_stops_at_the_last_save():
    model = nn.Sequential(nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64)))
    trace = record(model, (torch.rand(32, 64, requires_grad=True),))
    forward = [op for op in trace.analysis.ops if op.phase == "forward"]
    entered = {each.call_id: each for each in trace._memory_model._entered.values()}
    calls = {call.module: call for call in trace._memory_model.calls.values()}
    last = [op for op in forward if op.name == "addmm"][-1]
    saves = sum(each.packed_by == "pytorch" for each in trace.saved_tensors()) - 1  # of square
    assert saves == 5  # input and weight of both layers, result of tanh
    own_ns = CHECKPOINT_NS + saves * HOOKS_NS
    busy = busy_time(trace.analysis)  # without idle time
    begin_ns = busy(entered[calls["0"].call_id].time_ns)
    assert calls["0"].recompute_ns == busy(last.time_ns) - begin_ns + own_ns
    [tanh] = [op for op in forward if op.name == "tanh"]
    begin_ns = busy(entered[calls["0.1"].call_id].time_ns)
    end_ns = busy(tanh.time_ns + tanh.duration_ns)
    assert calls["0.1"].recompute_ns == end_ns - begin_ns + CHECKPOINT_NS + HOOKS_NS


@pytest.mark.parametrize("steps", [1, 3])
def test_times_are_those_of_one_step(steps):
    model, x = Autoencoder(), torch.rand(32, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with autogradviz.record(model) as trace:
        for _ in range(steps):
            model(x).square().sum().backward()
            optimizer.step()
    checkpointed = trace.predict_memory(checkpoint="encoder", offload="decoder")
    calls = [c for c in trace._memory_model.calls.values() if c.module == "encoder"]
    durations = sorted(call.recompute_ns for call in calls)
    assert [call.step for call in calls] == [*range(steps)]
    assert checkpointed.steps == steps
    assert checkpointed.recompute_ns == durations[(steps - 1) // 2]
    assert checkpointed.recompute_range_ns == (durations[0], durations[-1])
    only = trace.predict_memory(offload="decoder")
    weights = sum(p.nbytes for p in model.decoder.parameters() if p.ndim > 1)
    assert only.copied == weights + 3 * 32 * 64 * 4  # the inputs of both layers, the result of tanh
    assert only.recompute_range_ns == (0, 0)


def test_unknown_modules_and_missing_ops_are_errors():
    model = Autoencoder()
    trace = record(model, (torch.rand(4, 64),))
    with pytest.raises(ValueError, match="no module is named 'head'"):
        trace.predict_memory(checkpoint="head")
    with pytest.raises(ValueError, match='kind is "memory" or "time"'):
        trace.flame_graph("bytes")
    with autogradviz.record(model, ops=False) as without_ops:
        F.mse_loss(model(torch.rand(4, 64)), torch.rand(4, 64)).backward()
    with pytest.raises(ValueError, match="a prediction needs ops"):
        without_ops.predict_memory(checkpoint="encoder")


def test_modules_inside_a_chosen_one_and_modules_without_saves_change_nothing(case):
    trace = case[-1]
    patterns = case[2]
    outer = trace.predict_memory(checkpoint=patterns)
    modules = trace.analysis.modules.values()
    inside = [m.name for m in modules if m.name.startswith(f"{outer.checkpoint[0]}.")]
    assert trace.predict_memory(checkpoint=[*patterns, *inside]) == outer
    nothing = trace.predict_memory()
    assert nothing.predicted_peak == nothing.peak
    assert (nothing.freed, nothing.added_ns, nothing.copied) == (0, 0, 0)
