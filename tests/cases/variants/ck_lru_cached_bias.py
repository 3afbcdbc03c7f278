"""A position bias is cached by functools: forward computes it, recomputation reads the cache."""

import functools

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Bias(nn.Module):
    def __init__(self, size=5):
        super().__init__()
        self.slope = nn.Parameter(torch.rand(1))
        self.size = size

    def table(self):
        steps = torch.arange(self.size, dtype=torch.float)
        return torch.exp(-self.slope * (steps[:, None] - steps).abs())  # VICTIM


class Layer(nn.Module):
    def __init__(self, cached, dim=4):
        super().__init__()
        self.fc, self.bias = nn.Linear(dim, dim), Bias()
        self.lookup = functools.lru_cache(self.bias.table) if cached else self.bias.table  # CULPRIT

    def forward(self, x):
        return torch.relu(self.lookup() @ self.fc(x))  # ALSO


def go(cached):
    torch.manual_seed(0)
    layer = Layer(cached)
    checkpoint(layer, torch.randn(5, 4), use_reentrant=False).sum().backward()
    return {n: p.grad for n, p in layer.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
