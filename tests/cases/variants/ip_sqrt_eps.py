"""The epsilon of a norm is added in place."""

import torch
from torch import nn


class RMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-3, inplace=True):
        super().__init__()
        self.g, self.eps, self.inplace = nn.Parameter(torch.ones(dim)), eps, inplace

    def forward(self, x):
        rms = x.square().mean(-1, keepdim=True).sqrt()  # VICTIM
        rms = rms.add_(self.eps) if self.inplace else rms + self.eps  # CULPRIT
        return self.g * x / rms


def go(inplace):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 4), RMSNorm(4, inplace=inplace), nn.Linear(4, 1))
    net(torch.randn(3, 4)).sum().backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
