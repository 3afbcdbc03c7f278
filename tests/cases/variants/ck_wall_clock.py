"""A soft-start factor depends on the time since the creation of the module."""

import time

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class SoftStart(nn.Module):
    def __init__(self, timed, dim=4):
        super().__init__()
        self.fc, self.timed, self.born = nn.Linear(dim, dim), timed, time.perf_counter()

    def factor(self):
        if not self.timed:
            return 0.5
        return 1.0 - 1.0 / (1.0 + time.perf_counter() - self.born)  # CULPRIT

    def forward(self, x):
        return torch.tanh(self.fc(x) * self.factor())  # VICTIM


def go(timed):
    torch.manual_seed(0)
    net = SoftStart(timed)
    checkpoint(net, torch.randn(3, 4), use_reentrant=False).sum().backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
