"""Random numbers are drawn by an alias of the NumPy module, not restored by checkpoint."""

import torch
from numpy import random as chance
from torch import nn
from torch.utils.checkpoint import checkpoint


class Jittered(nn.Module):
    def __init__(self, jitter):
        super().__init__()
        self.fc, self.jitter = nn.Linear(4, 4), jitter

    def forward(self, x):
        scale = 1.0 + chance.rand() if self.jitter else 1.0  # CULPRIT
        return torch.tanh(self.fc(x) * scale)  # VICTIM


def go(jitter):
    torch.manual_seed(0)
    net = Jittered(jitter)
    checkpoint(net, torch.randn(3, 4), use_reentrant=False).square().sum().backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
