"""A custom Function writes its input without mark_dirty."""

import torch
from torch import nn


class LeakyInplace(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, slope, inplace):
        negative = x < 0
        ctx.save_for_backward(negative)
        ctx.slope = slope
        if inplace:
            x[negative] *= slope  # CULPRIT
            return x.view_as(x)
        return torch.where(negative, x * slope, x)

    @staticmethod
    def backward(ctx, grad):
        (negative,) = ctx.saved_tensors
        return torch.where(negative, grad * ctx.slope, grad), None, None


def go(inplace):
    torch.manual_seed(0)
    net = nn.Linear(4, 4)
    h = torch.sigmoid(net(torch.randn(3, 4)) ) - 0.5
    g = torch.tanh(h)  # VICTIM
    y = LeakyInplace.apply(g, 0.1, inplace)  # ALSO
    y.square().sum().backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
