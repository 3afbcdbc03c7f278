"""checkpoint_sequential, and a first layer that writes its input in place."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint_sequential


class Center(nn.Module):
    def __init__(self, inplace):
        super().__init__()
        self.inplace = inplace

    def forward(self, x):
        if self.inplace:
            return x.sub_(x.mean(-1, keepdim=True))  # CULPRIT
        return x - x.mean(-1, keepdim=True)


def go(inplace):
    torch.manual_seed(0)
    net = nn.Sequential(Center(inplace), nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 1))
    x = torch.randn(3, 6)
    y = checkpoint_sequential(net, 2, x, use_reentrant=False)  # VICTIM
    y.square().sum().backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
