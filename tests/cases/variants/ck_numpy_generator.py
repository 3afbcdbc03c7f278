"""A NumPy generator of the layer selects the tokens: every call advances it."""

import numpy as np
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class TokenDrop(nn.Module):
    def __init__(self, rng, keep=0.5):
        super().__init__()
        self.rng, self.keep = rng, keep

    def forward(self, x):
        if self.rng is None:
            return x[:, ::2]
        n = int(self.rng.integers(1, x.shape[1]))  # CULPRIT
        return x[:, :n]


class Stage(nn.Module):
    def __init__(self, rng, dim=6):
        super().__init__()
        self.drop = TokenDrop(rng)
        self.mix = nn.Linear(dim, dim)

    def forward(self, x):
        return torch.tanh(self.mix(self.drop(x)))  # VICTIM


def go(random):
    torch.manual_seed(0)
    stage = Stage(np.random.default_rng(4) if random else None)
    x = torch.randn(2, 9, 6, requires_grad=True)
    checkpoint(stage, x, use_reentrant=False).sum().backward()
    return {n: p.grad for n, p in stage.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
