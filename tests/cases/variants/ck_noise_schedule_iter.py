"""Diffusion noise levels are read from an iterator over a list: every run reads the next level."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Denoise(nn.Module):
    def __init__(self, levels, dim=4):
        super().__init__()
        self.net = nn.Linear(dim, dim)
        self.levels = levels

    def forward(self, x):
        sigma = self.levels if isinstance(self.levels, float) else next(self.levels)  # CULPRIT
        return torch.tanh(self.net(x) * sigma)  # VICTIM


def go(shared):
    torch.manual_seed(0)
    net = Denoise(iter([0.1, 0.5, 0.9]) if shared else 0.1)
    checkpoint(net, torch.randn(3, 4), use_reentrant=False).sum().backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
