"""A normalizing flow: invertible layers, exact likelihood."""

import math

import torch
from torch import nn


class Coupling(nn.Module):
    def __init__(self, size, flip):
        super().__init__()
        self.flip = flip
        half = size // 2
        self.inner = nn.Sequential(nn.Linear(half, 12), nn.SiLU(), nn.Linear(12, 2 * half))

    def forward(self, x):
        a, b = x.chunk(2, dim=1)
        if self.flip:
            a, b = b, a
        shift, log_scale = self.inner(a).chunk(2, dim=1)
        log_scale = torch.tanh(log_scale)
        b = b * log_scale.exp() + shift
        parts = (b, a) if self.flip else (a, b)
        return torch.cat(parts, 1), log_scale.sum(1)


class Normalize(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(size))
        self.log_scale = nn.Parameter(torch.zeros(size))
        self.register_buffer("ready", torch.tensor(False))

    def forward(self, x):
        if not self.ready:
            with torch.no_grad():
                self.bias.copy_(-x.mean(0))
                self.log_scale.copy_(-x.std(0).log())
                self.ready.fill_(True)
        y = (x + self.bias) * self.log_scale.exp()
        return y, self.log_scale.sum().expand(x.shape[0])


class Flow(nn.Module):
    def __init__(self, size=4):
        super().__init__()
        self.layers = nn.ModuleList([Normalize(size), Coupling(size, False), Coupling(size, True)])

    def forward(self, x):
        total = torch.zeros(x.shape[0])
        for layer in self.layers:
            x, log_det = layer(x)
            total = total + log_det
        prior = -0.5 * (x**2 + math.log(2 * math.pi)).sum(1)
        return prior + total


def main():
    torch.manual_seed(0)
    flow = Flow()
    optimizer = torch.optim.Adam(flow.parameters(), lr=1e-2)
    best = float("inf")
    for _ in range(4):
        x = torch.randn(16, 4) * 2 + 1
        likelihood = flow(x)
        loss = -likelihood.mean()
        optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(flow.parameters(), 10.0)
        if torch.isfinite(norm):
            optimizer.step()
        best = min(best, loss.item())
    return dict(flow.named_parameters())
