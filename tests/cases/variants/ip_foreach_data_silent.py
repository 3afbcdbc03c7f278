"""Weights are averaged into .data by foreach before backward: no version changes."""

import torch
from torch import nn


def average(nets, weight=0.5):
    first, second = ([p.data for p in net.parameters()] for net in nets)
    torch._foreach_mul_(first, weight)  # CULPRIT
    torch._foreach_add_(first, second, alpha=1 - weight)  # ALSO


def go(early):
    torch.manual_seed(0)
    a = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 1))
    b = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 1))
    loss = a(torch.randn(4, 3)).square().mean()  # VICTIM
    if early:
        average((a, b))  # ALSO
    loss.backward()
    return {n: p.grad for n, p in a.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
