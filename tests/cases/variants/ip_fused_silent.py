"""A fused optimizer writes weights that a second backward needs; no version changes."""

import torch
from torch import nn


def go(c):
    torch.manual_seed(0)
    m = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
    o = torch.optim.SGD(m.parameters(), lr=0.5, fused=True)
    x = torch.rand(3, 4)
    a = m(x)
    b = m(x * 2)  # VICTIM
    a.sum().backward()
    if c:
        o.step()  # CULPRIT
    b.sum().backward()
    return {n: p.grad for n, p in m.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
