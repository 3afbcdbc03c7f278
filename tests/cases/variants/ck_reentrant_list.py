"""Reentrant checkpoint ignores tensors inside a list: the previous layers get no gradient."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Fuse(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.out = nn.Linear(2 * dim, dim)

    def forward(self, levels):
        return torch.tanh(self.out(torch.cat(levels, -1)))  # VICTIM


class Pyramid(nn.Module):
    def __init__(self, reentrant, dim=4):
        super().__init__()
        self.low, self.high = nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.fuse = Fuse(dim)
        self.head = nn.Linear(dim, 1)
        self.reentrant = reentrant

    def forward(self, x):
        levels = [self.low(x), self.high(x)]
        h = checkpoint(self.fuse, levels, use_reentrant=self.reentrant)  # CULPRIT
        return self.head(h)  # VICTIM


def go(reentrant):
    import warnings

    torch.manual_seed(0)
    net = Pyramid(reentrant)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        net(torch.randn(3, 4)).sum().backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
