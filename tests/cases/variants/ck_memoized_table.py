"""A decorator caches the learned position table by length; the second call reads the cache."""
import functools

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


def per_length(method):
    @functools.wraps(method)
    def wrapper(self, n):
        table = self.__dict__.setdefault("_tables", {})
        if n not in table:
            table[n] = method(self, n)  # CULPRIT
        return table[n]

    return wrapper


class Positions(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.freq = nn.Parameter(torch.rand(dim))

    @per_length
    def table(self, n):
        angle = torch.arange(n, dtype=torch.float)[:, None] * self.freq  # VICTIM
        return torch.sin(angle)


class PlainPositions(Positions):
    def table(self, n):
        return torch.sin(torch.arange(n, dtype=torch.float)[:, None] * self.freq)


class Block(nn.Module):
    def __init__(self, positions, dim=6):
        super().__init__()
        self.positions, self.fc = positions, nn.Linear(dim, dim)

    def forward(self, x):
        return torch.tanh(self.fc(x + self.positions.table(x.shape[1])))


def go(kind):
    torch.manual_seed(0)
    net = Block(kind(6))
    checkpoint(net, torch.randn(2, 4, 6), use_reentrant=False).sum().backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(Positions)


def reference():
    return go(PlainPositions)
