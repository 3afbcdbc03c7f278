"""The loss is computed from a detached tensor."""

import torch
from torch import nn


def go(c):
    torch.manual_seed(0)
    net = nn.Linear(4, 4)
    y = net(torch.rand(2, 4))
    if c:
        y = y.detach()  # CULPRIT
    loss = (y * 2).sum()
    loss.backward()  # VICTIM
    return {"w": net.weight.grad}


def run():
    return go(True)


def reference():
    return go(False)
