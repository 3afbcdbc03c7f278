"""Adapters are merged into the base weight to generate a sample before backward."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class LoRALinear(nn.Module):
    def __init__(self, dim=6, rank=2):
        super().__init__()
        self.base = nn.Linear(dim, dim)
        self.a, self.b = nn.Linear(dim, rank, bias=False), nn.Linear(rank, dim, bias=False)
        self.merged = False

    def merge(self):
        self.base.weight.data += self.b.weight.data @ self.a.weight.data  # ALSO
        self.merged = True  # CULPRIT

    def forward(self, x):
        h = self.base(x)
        if not self.merged:
            h = h + self.b(self.a(x))  # VICTIM
        return torch.tanh(h)


@torch.no_grad()
def sample(layer, x):
    layer.merge()  # ALSO
    return layer(x)


def go(early):
    torch.manual_seed(0)
    layer = LoRALinear()
    x = torch.randn(3, 6)
    y = checkpoint(layer, x, use_reentrant=False)
    if early:
        sample(layer, x)  # ALSO
    y.square().mean().backward()
    return {n: p.grad for n, p in layer.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
