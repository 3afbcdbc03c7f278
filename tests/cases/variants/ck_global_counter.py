"""A global counter selects the branch."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

STEP = 0
net = nn.Linear(4, 4)


def block(x):
    global STEP
    STEP += 1  # CULPRIT
    y = net(x).sin()
    if STEP % 2:
        y = y.exp() * y  # VICTIM
    return y


def go(c):
    global STEP
    STEP = 0
    torch.manual_seed(0)
    x = torch.rand(2, 4, requires_grad=True)
    (checkpoint(block, x, use_reentrant=False) if c else block(x)).sum().backward()
    return {"x": x.grad}


def run():
    return go(True)


def reference():
    return go(False)
