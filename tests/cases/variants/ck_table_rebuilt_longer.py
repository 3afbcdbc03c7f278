"""A rotary table is rebuilt by a longer sequence before the shorter one is recomputed."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Rotary:
    def __init__(self, dim, stateless):
        self.dim, self.stateless = dim, stateless
        self._build(4)

    def angles(self, length):
        base = 100.0 * max(1, length / 4)
        frequencies = base ** (-torch.arange(0, self.dim).float() / self.dim)
        return torch.arange(length).float()[:, None] * frequencies

    def _build(self, length):
        self.longest = length
        self.cosines = self.angles(length).cos()  # CULPRIT

    def __call__(self, length):
        if self.stateless:
            return self.angles(length).cos()
        if length > self.longest:
            self._build(length)  # ALSO
        return self.cosines[:length]


class Layer(nn.Module):
    def __init__(self, d, rotary):
        super().__init__()
        self.q, self.rotary = nn.Linear(d, d), rotary

    def forward(self, x):
        turned = self.q(x) * self.rotary(len(x))  # VICTIM
        return x + turned.tanh()


def _step(stateless):
    torch.manual_seed(0)
    layer = Layer(6, Rotary(6, stateless))
    short = checkpoint(layer, torch.randn(4, 6), use_reentrant=False)
    long = checkpoint(layer, torch.randn(9, 6), use_reentrant=False)
    (short.square().mean() - long.square().mean()).backward()
    return {n: p.grad for n, p in layer.named_parameters()}


def run():
    return _step(False)


def reference():
    return _step(True)
