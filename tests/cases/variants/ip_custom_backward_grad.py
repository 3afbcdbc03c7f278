"""A custom backward scales its input gradient in place; a second branch receives it too."""

import torch
from torch import nn


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor, inplace):
        ctx.factor, ctx.inplace = factor, inplace
        return x * factor

    @staticmethod
    def backward(ctx, grad):
        if ctx.inplace:
            grad *= ctx.factor  # CULPRIT
            return grad, None, None
        return grad * ctx.factor, None, None


class Two(nn.Module):
    def __init__(self, dim=4):
        super().__init__()
        self.a, self.b = nn.Linear(dim, dim), nn.Linear(dim, dim)

    def forward(self, x, inplace):
        left = self.a(x)  # VICTIM
        right = Scale.apply(self.b(x), 0.1, inplace)
        return left + right


def go(inplace):
    torch.manual_seed(0)
    net = Two()
    net(torch.randn(3, 4), inplace).square().sum().backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
