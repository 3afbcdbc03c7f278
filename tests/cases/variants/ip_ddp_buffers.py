"""Buffers are broadcast before each forward, which writes tensors saved by the first."""

import torch
from torch import nn


class Replica(nn.Module):
    def __init__(self, module, source, broadcast):
        super().__init__()
        self.module, self.source, self.broadcast = module, source, broadcast

    def forward(self, x):
        if self.broadcast:
            for mine, theirs in zip(self.module.buffers(), self.source.buffers()):
                mine.copy_(theirs)  # CULPRIT
        return self.module(x)  # VICTIM


def make():
    return nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Tanh()).eval()


def go(broadcast):
    torch.manual_seed(0)
    net = Replica(make(), make(), broadcast)
    a = net(torch.randn(6, 4))  # ALSO
    b = net(torch.randn(6, 4))  # ALSO
    (a - b).square().sum().backward()
    return {n: p.grad for n, p in net.module.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
