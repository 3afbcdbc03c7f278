"""A lambda reads the loop variable when it is recomputed: always the last layer."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Stack(nn.Module):
    def __init__(self, late, dim=6, depth=3):
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(dim, dim), nn.Tanh()) for _ in range(depth))
        self.late = late

    def forward(self, x):
        for layer in self.layers:  # ALSO
            if self.late:
                def late(h):  # CULPRIT
                    return layer(h)  # VICTIM

                x = checkpoint(late, x, use_reentrant=False)  # ALSO
            else:
                x = checkpoint(layer, x, use_reentrant=False)
        return x


def go(late):
    torch.manual_seed(0)
    net = Stack(late)
    net(torch.randn(4, 6)).square().mean().backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
