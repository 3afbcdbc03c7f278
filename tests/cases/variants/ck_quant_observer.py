"""A fake quantizer tracks the observed range; the recomputation extends it again."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class FakeQuant(nn.Module):
    def __init__(self, track):
        super().__init__()
        self.register_buffer("amax", torch.tensor(0.5))
        self.track = track

    def forward(self, x):
        if self.track:
            self.amax = 0.9 * self.amax + 0.1 * x.detach().abs().max()  # CULPRIT
        step = self.amax / 7
        return (torch.round(x / step) * step - x).detach() + x * self.amax  # VICTIM


class QuantMLP(nn.Module):
    def __init__(self, track, dim=6):
        super().__init__()
        self.a, self.q, self.b = nn.Linear(dim, dim), FakeQuant(track), nn.Linear(dim, dim)

    def forward(self, x):
        return self.b(torch.relu(self.q(self.a(x))))


def go(track):
    torch.manual_seed(0)
    net = QuantMLP(track)
    checkpoint(net, torch.randn(4, 6), use_reentrant=False).square().sum().backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
