"""Spectral normalization iterates in forward; the recomputation iterates again."""

import torch
from torch import nn
from torch.nn.utils import spectral_norm
from torch.utils.checkpoint import checkpoint


class Critic(nn.Module):
    def __init__(self, norm, dim=5):
        super().__init__()
        self.inp = nn.Linear(dim, dim)
        self.mid = spectral_norm(nn.Linear(dim, dim)) if norm else nn.Linear(dim, dim)

    def forward(self, x):
        h = torch.tanh(self.inp(x))
        h = self.mid(h)  # CULPRIT
        return torch.sigmoid(h)


def go(norm):
    torch.manual_seed(0)
    net = Critic(norm)
    x = torch.randn(3, 5)
    checkpoint(net, x, use_reentrant=False).sum().backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
