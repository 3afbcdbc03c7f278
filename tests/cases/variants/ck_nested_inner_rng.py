"""Nested checkpoints: the inner one does not preserve the random state of its dropout."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint


class FFN(nn.Module):
    def __init__(self, d, preserve):
        super().__init__()
        self.up, self.down, self.preserve = nn.Linear(d, 2 * d), nn.Linear(2 * d, d), preserve

    def inner(self, x):
        return self.down(F.dropout(torch.relu(self.up(x)), 0.5, True))  # VICTIM

    def forward(self, x):
        return x + checkpoint(self.inner, x, use_reentrant=False, preserve_rng_state=self.preserve)  # CULPRIT


class Stage(nn.Module):
    def __init__(self, d, preserve):
        super().__init__()
        self.blocks = nn.ModuleList(FFN(d, preserve) for _ in range(2))

    def forward(self, x):
        for b in self.blocks:
            x = b(x)
        return x


def go(preserve):
    torch.manual_seed(0)
    stage = Stage(6, preserve)
    y = checkpoint(stage, torch.randn(4, 6), use_reentrant=False)
    y.pow(2).sum().backward()
    return {n: p.grad for n, p in stage.named_parameters()}


def run():
    return go(False)


def reference():
    return go(True)
