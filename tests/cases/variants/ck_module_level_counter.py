"""A function attribute counts the calls; dropout is enabled only for the first call."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import torch.nn.functional as F


def warm_dropout(x, p):
    warm_dropout.calls += 1  # CULPRIT
    return F.dropout(x, p) if warm_dropout.calls <= 1 else x  # VICTIM


warm_dropout.calls = 0


class MLP(nn.Module):
    def __init__(self, dim=6):
        super().__init__()
        self.a, self.b = nn.Linear(dim, dim), nn.Linear(dim, dim)

    def forward(self, x, warm):
        h = torch.relu(self.a(x))
        return self.b(warm_dropout(h, 0.5) if warm else h)


def go(warm):
    torch.manual_seed(0)
    warm_dropout.calls = 0
    net = MLP()
    checkpoint(net, torch.randn(3, 6), warm, use_reentrant=False).sum().backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
