"""The order of experts is shuffled by the random module: equal shapes, different weights."""

from random import shuffle

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Chain(nn.Module):
    def __init__(self, mix, dim=4):
        super().__init__()
        self.steps = nn.ModuleList(nn.Linear(dim, dim) for _ in range(4))
        self.mix = mix

    def order(self):
        order = list(range(len(self.steps)))
        if self.mix:
            shuffle(order)  # CULPRIT
        return order

    def forward(self, x):
        for i in self.order():
            x = torch.tanh(self.steps[i](x))  # VICTIM
        return x


def go(mix):
    import random

    random.seed(1)
    torch.manual_seed(0)
    net = Chain(mix)
    checkpoint(net, torch.randn(3, 4), use_reentrant=False).sum().backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
