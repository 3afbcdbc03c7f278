"""A tensor saved by a custom Function is written before backward."""

import torch
from torch import nn


class Sq(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)  # VICTIM
        return x * x

    @staticmethod
    def backward(ctx, g):
        return 2 * ctx.saved_tensors[0] * g


def go(c):
    torch.manual_seed(0)
    w = nn.Parameter(torch.rand(4))
    x = w * 1
    y = Sq.apply(x)
    if c:
        x.mul_(3)  # CULPRIT
    y.sum().backward()
    return {"w": w.grad}


def run():
    return go(True)


def reference():
    return go(False)
