"""Stochastic depth by the random module inside one region: the same line runs all layers."""

import random

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Tower(nn.Module):
    def __init__(self, drop, dim=5, depth=6):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(dim, dim) for _ in range(depth))
        self.drop = drop

    def keep(self, index):
        return random.random() >= self.drop * index / len(self.layers)  # CULPRIT

    def forward(self, x):
        for index, layer in enumerate(self.layers):
            if self.keep(index):
                x = x + torch.tanh(layer(x))  # VICTIM
        return x


def go(drop):
    random.seed(3)
    torch.manual_seed(0)
    net = Tower(drop)
    checkpoint(net, torch.randn(2, 5), use_reentrant=False).square().sum().backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(0.8)


def reference():
    return go(0.0)
