"""A custom Function keeps its input as an attribute of ctx, without a version check."""

import torch
from torch import nn


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.x = x  # ALSO
        return x * x  # VICTIM

    @staticmethod
    def backward(ctx, grad):
        return 2 * ctx.x * grad  # VICTIM


class Model(nn.Module):
    def __init__(self, inplace, dim=4):
        super().__init__()
        self.fc, self.inplace = nn.Linear(dim, dim), inplace

    def forward(self, x):
        h = self.fc(x)
        y = Square.apply(h)  # VICTIM
        if self.inplace:
            h.add_(1.0)  # CULPRIT
        else:
            h = h + 1.0
        return y.sum() + h.sum()


def go(inplace):
    torch.manual_seed(0)
    model = Model(inplace)
    model(torch.randn(3, 4)).backward()
    return {n: p.grad for n, p in model.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
