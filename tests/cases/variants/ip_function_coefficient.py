"""A custom Function saves per-channel gains in setup_context; they are changed before backward."""

import torch
from torch import nn


class Gain(torch.autograd.Function):
    @staticmethod
    def forward(x, gain):
        return x * gain

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[1])  # VICTIM

    @staticmethod
    def backward(ctx, grad):
        (gain,) = ctx.saved_tensors
        return grad * gain, None


class Adaptive(nn.Module):
    def __init__(self, copies):
        super().__init__()
        self.lin = nn.Linear(4, 3)
        self.register_buffer("gain", torch.ones(3))
        self.copies = copies

    def adapt(self, y):
        level = y.detach().abs().mean(0)
        self.gain.mul_(0.9).add_(0.1 / level)  # CULPRIT
        self.gain.clamp_(max=2.0)

    def forward(self, x):
        y = Gain.apply(self.lin(x), self.gain.clone() if self.copies else self.gain)
        self.adapt(y)  # ALSO
        return y


def go(copies):
    torch.manual_seed(0)
    net = Adaptive(copies)
    net(torch.randn(5, 4)).square().sum().backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(False)


def reference():
    return go(True)
