"""A custom Function has an additional temperature input; its backward returns one gradient."""
import torch
from torch import nn


class Sharpen(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, temperature):
        y = torch.softmax(x / temperature, -1)
        ctx.save_for_backward(y)
        ctx.temperature = temperature
        return y

    @staticmethod
    def backward(ctx, grad):
        (y,) = ctx.saved_tensors
        inner = (grad * y).sum(-1, keepdim=True)
        return y * (grad - inner) / ctx.temperature  # CULPRIT


class Fixed(Sharpen):
    @staticmethod
    def backward(ctx, grad):
        (y,) = ctx.saved_tensors
        inner = (grad * y).sum(-1, keepdim=True)
        return y * (grad - inner) / ctx.temperature, None


def go(function):
    torch.manual_seed(0)
    net = nn.Linear(4, 3)
    function.apply(net(torch.randn(2, 4)), 0.5).square().sum().backward()  # VICTIM
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(Sharpen)


def reference():
    return go(Fixed)
