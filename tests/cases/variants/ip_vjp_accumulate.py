"""Reversible block: activations are rebuilt in place inside a custom backward, from its saved output."""
import torch
from torch import nn


class Couple(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, fn, inplace, *weights):
        with torch.no_grad():
            y = x + fn(x.detach() * 0 + 0.5)
        ctx.fn, ctx.inplace = fn, inplace
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad):
        (y,) = ctx.saved_tensors
        delta = ctx.fn(torch.full_like(y, 0.5)).detach()
        x = y.sub_(delta) if ctx.inplace else y - delta  # CULPRIT
        return grad * torch.cos(x), None, None


class Rev(nn.Module):
    def __init__(self, inplace, dim=4):
        super().__init__()
        self.f, self.inplace = nn.Linear(dim, dim), inplace
        self.first = nn.Linear(dim, dim)

    def forward(self, x):
        y = Couple.apply(self.first(x), self.f, self.inplace)
        return torch.sigmoid(y), y * y  # VICTIM


def go(inplace):
    torch.manual_seed(0)
    net = Rev(inplace)
    a, b = net(torch.randn(3, 4))
    a.sum().backward(retain_graph=True)
    b.sum().backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
