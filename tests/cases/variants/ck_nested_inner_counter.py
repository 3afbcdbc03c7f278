"""A counter inside a nested checkpoint is incremented by every recomputation of either region."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Inner(nn.Module):
    def __init__(self, count, dim=4):
        super().__init__()
        self.fc, self.count, self.tick = nn.Linear(dim, dim), count, 0

    def forward(self, x):
        if self.count:
            self.tick += 1  # CULPRIT
        return torch.tanh(self.fc(x) * (1 + self.tick))  # VICTIM


class Outer(nn.Module):
    def __init__(self, count, dim=4):
        super().__init__()
        self.pre, self.inner = nn.Linear(dim, dim), Inner(count)

    def forward(self, x):
        return checkpoint(self.inner, torch.sigmoid(self.pre(x)), use_reentrant=False)


def go(count):
    torch.manual_seed(0)
    net = Outer(count)
    checkpoint(net, torch.randn(3, 4), use_reentrant=False).sum().backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
