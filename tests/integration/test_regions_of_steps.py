"""Each checkpoint region belongs to the step that ran its forward."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import autogradviz

STEPS = 3


def test_each_step_has_its_own_regions():
    blocks = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))
    optimizer = torch.optim.SGD(blocks.parameters(), lr=0.1)
    with autogradviz.record(blocks) as trace:
        for _ in range(STEPS):
            optimizer.zero_grad()
            x = torch.ones(2, 4, requires_grad=True)
            for block in blocks:
                x = checkpoint(block, x, use_reentrant=False)
            x.sum().backward()
            optimizer.step()
    scene = trace._viewer_scene
    assert len(scene.steps) == STEPS
    assert [region.step for region in scene.regions] == [0, 0, 1, 1, 2, 2]
    for span in scene.spans:
        if span.kind == "recompute":
            step = scene.steps[scene.regions[span.ref].step]
            assert step.start_ns <= span.start_ns <= step.end_ns
