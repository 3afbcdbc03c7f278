"""LayerDrop draws from random.Random of the module, which checkpoint does not restore."""

import random

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Encoder(nn.Module):
    def __init__(self, d, drop, bug):
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(d, d), nn.Tanh()) for _ in range(6))
        self.drop, self.rng, self.bug = drop, random.Random(3), bug

    def keep(self):
        return [self.rng.random() >= self.drop for _ in self.layers]  # CULPRIT

    def forward(self, x, keep=None):
        for layer, k in zip(self.layers, keep or self.keep()):  # ALSO
            if k:
                x = layer(x)  # VICTIM
        return x


def go(bug):
    torch.manual_seed(0)
    enc = Encoder(5, 0.5, bug)
    x = torch.randn(3, 5, requires_grad=True)
    args = (x,) if bug else (x, enc.keep())
    checkpoint(enc, *args, use_reentrant=False).sum().backward()
    return {n: p.grad for n, p in enc.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
