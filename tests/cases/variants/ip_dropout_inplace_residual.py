"""Dropout works in place on a tensor that gelu saved."""

import torch
import torch.nn.functional as F
from torch import nn


class FF(nn.Module):
    def __init__(self, dim=6, inplace=True):
        super().__init__()
        self.up, self.down = nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.norm = nn.Tanh()
        self.drop = nn.Dropout(0.1, inplace=inplace)

    def forward(self, x):
        h = self.norm(self.up(x))  # VICTIM
        h = self.drop(h)  # CULPRIT
        return x + self.down(h)


def go(inplace):
    torch.manual_seed(0)
    net = FF(inplace=inplace).train()
    net(torch.randn(3, 6)).square().sum().backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
