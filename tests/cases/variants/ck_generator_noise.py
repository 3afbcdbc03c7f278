"""Noise is drawn from a generator of the layer; preserve_rng_state does not restore it."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class NoisyLinear(nn.Module):
    def __init__(self, dim, own):
        super().__init__()
        self.fc = nn.Linear(dim, dim)
        self.generator = torch.Generator().manual_seed(3) if own else None

    def jitter(self, x):
        return torch.randn(x.shape, generator=self.generator)  # CULPRIT

    def forward(self, x):
        h = torch.tanh(self.fc(x))
        return h * (1 + 0.1 * self.jitter(x))  # VICTIM


def train_step(model, x):
    h = checkpoint(model, x, use_reentrant=False)
    h.square().mean().backward()


def go(own):
    torch.manual_seed(0)
    model = NoisyLinear(8, own)
    train_step(model, torch.randn(4, 8))
    return {n: p.grad for n, p in model.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
