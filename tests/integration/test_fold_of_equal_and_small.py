"""Folds of steps that hold the same, of several backwards, and of tensors of few bytes."""

from __future__ import annotations

import re

import torch
from torch import nn
from training_programs import PROGRAMS

import autogradviz
from autogradviz.analysis.formatting import format_bytes
from autogradviz.event_log.saved_tensor_lifetimes import alive_at_peak
from autogradviz.scene.saved_memory_fold import LARGER, SMALL


class Block(nn.Module):
    def __init__(self, *, detaches=False):
        super().__init__()
        self.norm, self.linear, self.out = nn.LayerNorm(64), nn.Linear(64, 64), nn.Linear(64, 64)
        self.detaches = detaches

    def forward(self, x):
        normed = self.norm(x.detach() if self.detaches else x)
        return x + self.out(self.linear(normed).relu() / torch.tensor(2.0))


class Net(nn.Module):
    def __init__(self, cut=-1):
        super().__init__()
        self.h = nn.ModuleList(Block(detaches=at == cut) for at in range(4))

    def forward(self, x):
        for block in self.h:
            x = block(x)
        return x.square().sum()


def record(model, steps=1):
    optimizer = torch.optim.SGD(model.parameters())
    with autogradviz.record(model) as trace:
        for _ in range(steps):
            loss = model(torch.rand(64, 64))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    return trace


def test_a_tensor_of_few_bytes_has_no_width_at_its_edges():
    scene = record(Net())._viewer_scene
    [fold] = scene.folds
    blocks = {each.block for each in scene.ribbons}
    assert len(blocks) > 3
    small = 0
    for block in blocks:
        own = [each for each in scene.ribbons if each.block == block]
        most = max(each.nbytes for each in own)
        limit = min(fold.nbytes / SMALL, most / LARGER)
        for each in own:
            if each.nbytes < limit:
                small += 1
                assert each.top[1] - each.top[0] <= 1
                assert not each.bottom or each.bottom[1] - each.bottom[0] <= 1
    assert small >= 4


def test_of_equal_peaks_the_last_one_counts():
    spans = [(0, 2, 8), (3, 5, 8), (6, None, 4)]
    assert alive_at_peak(spans) == [1]
    trace = record(Net(), steps=3)
    scene = trace._viewer_scene
    first, *_, last = scene.folds
    assert first.peak_nbytes == last.peak_nbytes == trace.saved_bytes().at_peak
    start_ns = scene.steps[last.step].start_ns
    held = [each for each in scene.counted_storages if each.at_peak]
    assert held
    assert all(any(at >= start_ns for at in each.holds[::2]) for each in held)
    [question] = [each for each in scene.questions if each.listed == "what fills memory"]
    assert question.sentence == last.sentence
    assert "of step 2" in last.sentence


def test_a_backward_says_what_others_hold_at_its_peak():
    trace = PROGRAMS["gan"]()
    scene = trace._viewer_scene
    analysis = trace.analysis
    found = 0
    for fold in scene.folds:
        curve = analysis.memory
        at = max(at for at, time_ns in enumerate(curve.times_ns) if time_ns <= fold.peak_ns)
        others = curve.nbytes[at] - fold.peak_nbytes
        text = re.search(r"With what other backwards hold then, it is (\S+ \S+)\.",
                         fold.sentence.replace("\xa0", " "))  # fmt: skip
        if others <= 0:
            assert not text
            continue
        found += 1
        assert text
        assert text[1] == format_bytes(curve.nbytes[at]).replace("\xa0", " ")
    assert found


def test_a_block_that_detaches_is_not_folded_with_others():
    def labels(model):
        return [group.label for group in record(model)._viewer_scene.groups]

    assert "h.0–3" in labels(Net())
    found = labels(Net(cut=2))
    assert "h.0–3" not in found
    assert {"h.0–1", "h.2", "h.3"} <= set(found)
