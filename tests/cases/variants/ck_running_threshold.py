"""A gate compares with a running mean updated by every forward: the branches differ."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class AdaptiveGate(nn.Module):
    def __init__(self, track, dim=4):
        super().__init__()
        self.register_buffer("level", torch.tensor(0.0))
        self.small, self.large, self.track = nn.Linear(dim, dim), nn.Sequential(nn.Linear(dim, dim), nn.GELU()), track

    def forward(self, x):
        energy = x.detach().square().mean()
        heavy = bool(energy > self.level)
        if self.track:
            self.level.mul_(0.1).add_(0.9 * energy * 1.2)  # CULPRIT
        return self.large(x) if heavy else self.small(x)  # VICTIM


def go(track):
    torch.manual_seed(0)
    gate = AdaptiveGate(track)
    x = torch.randn(3, 4, requires_grad=True)
    checkpoint(gate, x, use_reentrant=False).square().sum().backward()
    return {n: p.grad for n, p in gate.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
