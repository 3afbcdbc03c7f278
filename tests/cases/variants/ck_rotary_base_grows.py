"""A longer sequence changes the base of the rotary angles before a shorter one is recomputed."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Rotary(nn.Module):
    def __init__(self, dim, limit):
        super().__init__()
        self.dim, self.limit, self._seen = dim, limit, 0
        self._base = 100.0

    def _grow(self, length):
        self._seen = length
        self._base = 100.0 * (length / self.limit)  # CULPRIT

    def forward(self, x):
        if len(x) > max(self._seen, self.limit):
            self._grow(len(x))  # ALSO
        freq = self._base ** -(torch.arange(self.dim) / self.dim)
        angle = torch.arange(len(x))[:, None] * freq
        return torch.tanh(x * angle.cos())  # VICTIM


class Net(nn.Module):
    def __init__(self, limit):
        super().__init__()
        self.fc, self.rotary = nn.Linear(4, 4), Rotary(4, limit)

    def forward(self, x):
        return self.rotary(self.fc(x))


def go(bug):
    torch.manual_seed(0)
    net = Net(3 if bug else 99)
    a = checkpoint(net, torch.randn(3, 4), use_reentrant=False)
    b = checkpoint(net, torch.randn(6, 4), use_reentrant=False)
    (a.sum() + b.sum()).backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
