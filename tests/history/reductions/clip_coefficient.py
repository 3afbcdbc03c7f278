"""A hand-written clipping bounds its coefficient from below, so it enlarges small gradients."""

import torch
from torch import nn

FOUND = False


def clip_wrong(parameters, limit):
    total = torch.stack([p.grad.norm() for p in parameters]).norm()
    factor = torch.clamp(limit / total, min=1.0)  # CULPRIT
    for p in parameters:
        p.grad.mul_(factor)


def clip_right(parameters, limit):
    total = torch.stack([p.grad.norm() for p in parameters]).norm()
    factor = torch.clamp(limit / total, max=1.0)
    for p in parameters:
        p.grad.mul_(factor)


def train(clip):
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    x, y = torch.randn(9, 4), torch.randn(9, 3) * 20
    nn.functional.mse_loss(model(x), y).backward()
    clip(list(model.parameters()), 1.0)
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    return [p.grad.clone() for p in model.parameters()]


def run():
    return train(clip_wrong)


def reference():
    return train(clip_right)
