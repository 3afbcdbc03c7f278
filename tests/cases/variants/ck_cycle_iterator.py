"""Experts are selected by itertools.cycle: the recomputation selects the next expert."""

import itertools

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class RoundRobin(nn.Module):
    def __init__(self, turns, dim=4):
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(dim, dim) for _ in range(3))
        self.turn = itertools.cycle(range(3)) if turns else None

    def pick(self):
        return self.experts[0 if self.turn is None else next(self.turn)]  # CULPRIT

    def forward(self, x):
        return torch.relu(self.pick()(x))  # VICTIM


def go(turns):
    torch.manual_seed(0)
    net = RoundRobin(turns)
    checkpoint(net, torch.randn(3, 4), use_reentrant=False).sum().backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
