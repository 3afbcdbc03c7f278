"""The distance of two equal points has no derivative: its gradient is NaN, the loss is finite."""

import torch
from torch import nn


def go(c):
    torch.manual_seed(0)
    net, x = nn.Linear(4, 4), torch.rand(3, 4)
    h = net(x)
    squared = (h[:, None] - h[None]).square().sum(-1)
    distance = (squared + (0 if c else 1e-8)).sqrt()  # CULPRIT
    distance.mean().backward()  # VICTIM
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
