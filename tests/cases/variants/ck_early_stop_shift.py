"""A cached table is missing when the region is recomputed; early stop hides the additional save."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Rotary(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.angle = nn.Parameter(torch.rand(4, dim))
        self.cached = None

    def forward(self):
        if self.cached is None:
            self.cached = torch.sin(self.angle)  # VICTIM
        return self.cached

    def reset(self):
        self.cached = None  # CULPRIT


class Block(nn.Module):
    def __init__(self, rotary, dim):
        super().__init__()
        self.rotary, self.a = rotary, nn.Parameter(torch.randn(4, dim))

    def forward(self, x):
        return torch.exp(self.a * self.rotary()).mul(x).cos()  # VICTIM


def go(reset):
    torch.manual_seed(0)
    rotary = Rotary(4)
    block = Block(rotary, 4)
    h = rotary() + torch.randn(4, 4)
    y = checkpoint(block, h, use_reentrant=False)
    if reset:
        rotary.reset()  # ALSO
    y.sum().backward()
    return {n: p.grad for n, p in block.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
