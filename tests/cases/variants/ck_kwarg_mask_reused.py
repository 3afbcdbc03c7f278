"""A mask passed by keyword is refilled for the next batch before backward, without a check."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Attend(nn.Module):
    def __init__(self, dim=6):
        super().__init__()
        self.q, self.k = nn.Linear(dim, dim), nn.Linear(dim, dim)

    def forward(self, x, *, mask):
        score = self.q(x) @ self.k(x).t()
        return score.masked_fill(mask, -1e9).softmax(-1) @ x  # VICTIM


class Batcher:
    def __init__(self, size):
        self.mask = torch.zeros(size, size, dtype=torch.bool)

    def fill(self, shift):
        self.mask.copy_(torch.ones_like(self.mask).triu(shift))  # CULPRIT
        return self.mask


def go(reuse):
    torch.manual_seed(0)
    net, batcher = Attend(), Batcher(5)
    x = torch.randn(5, 6)
    mask = batcher.fill(1)
    y = checkpoint(net, x, mask=mask, use_reentrant=False)
    if reuse:
        batcher.fill(3)
    y.square().sum().backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
