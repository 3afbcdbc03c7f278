"""Initialization is no forward, and the gradient that backward creates belongs to backward."""

import pytest
import torch
from torch import nn

import autogradviz

STEPS = 3


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 8)  # initialized here
        self.second = nn.Linear(8, 1)  # initialized here

    def forward(self, x):
        return self.second(self.first(x).tanh())


def train(clears):
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    x = torch.randn(4, 8)  # initialized here
    for _ in range(STEPS):
        if clears:
            optimizer.zero_grad()
        loss = model(x).mean()
        loss.backward()  # backward
        optimizer.step()
        if not clears:
            optimizer.zero_grad()


def phases_of(scene, comment):
    texts = {(line.filename, line.lineno): line.text for line in scene.lines}
    frames = scene.call_frames
    own = [at for at, each in enumerate(frames) if comment in texts[each.filename, each.lineno]]
    return {row.phase for row in scene.call_times if row.origin in own}


@pytest.mark.parametrize("clears", [True, False])
def test_phases_of_initialization_and_of_the_call_of_backward(clears):
    with autogradviz.record(stacks=True) as trace:
        train(clears)
    scene = trace._viewer_scene
    assert phases_of(scene, "# initialized here") == {"outside"}
    assert phases_of(scene, "# backward") <= {"backward"}
    spans = [span for span in scene.spans if not span.depth]
    forwards = [span for span in spans if span.kind == "forward"]
    backwards = [span for span in spans if span.kind == "backward"]
    assert len(forwards) == len(backwards) == STEPS
    created = [op for op in trace.analysis.ops if op.name == "ones_like"]
    assert len(created) == STEPS
    for forward, backward, op in zip(forwards, backwards, created, strict=True):
        assert forward.end_ns <= backward.start_ns
        assert backward.start_ns <= op.time_ns <= backward.end_ns


def test_without_any_forward_ops_are_what_ran():
    with autogradviz.record() as trace, torch.no_grad():
        torch.ones(3).add(1).sum()
    assert [span.kind for span in trace.analysis.timeline.spans if span.kind != "mode"] == [
        "forward"
    ]
