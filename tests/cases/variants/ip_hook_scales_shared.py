"""A hook scales a gradient in place; the same buffer is the gradient of the other branch."""

import torch
from torch import nn


class Branches(nn.Module):
    def __init__(self, dim=4):
        super().__init__()
        self.left, self.right = nn.Linear(dim, dim), nn.Linear(dim, dim)

    def forward(self, x, hook):
        a, b = self.left(x), self.right(x)  # VICTIM
        b.register_hook(hook)  # ALSO
        return a + b  # VICTIM


def halve(grad):
    return grad.mul_(0.5)  # CULPRIT


def halved(grad):
    return grad * 0.5


def go(wrong):
    torch.manual_seed(0)
    net = Branches()
    net(torch.randn(3, 4), halve if wrong else halved).square().sum().backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
