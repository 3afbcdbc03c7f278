"""Pruning sets rows of a weight to zero through a view under no_grad before backward."""

import torch
from torch import nn


class Pruner:
    def __init__(self, layer, rows):
        self.rows = [layer.weight.detach()[r] for r in rows]

    def apply(self):
        for row in self.rows:
            row.zero_()  # CULPRIT


def go(early):
    torch.manual_seed(0)
    first, second = nn.Linear(4, 4), nn.Linear(4, 2)
    pruner = Pruner(second, [0])
    out = second(torch.tanh(first(torch.randn(3, 4))))  # VICTIM
    if early:
        pruner.apply()  # ALSO
    out.square().sum().backward()
    return {n: p.grad for n, p in first.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
