"""A closure counts its calls, and saves more from the second call on."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop


def make():
    calls = 0
    w = nn.Parameter(torch.ones(4))

    def block(x):
        nonlocal calls
        calls += 1  # CULPRIT
        y = (x * w).sin()
        return y.exp().sin() if calls > 1 else y.exp()  # VICTIM

    return block


def go(c):
    torch.manual_seed(0)
    x = torch.rand(2, 4, requires_grad=True)
    b = make()
    with set_checkpoint_early_stop(False):
        (checkpoint(b, x, use_reentrant=False) if c else b(x)).sum().backward()
    return {"x": x.grad}


def run():
    return go(True)


def reference():
    return go(False)
