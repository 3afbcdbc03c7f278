"""Experts are routed by (layer, head), in a table whose keys are pairs, set through ``operator``."""

import functools
import operator

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Routed(nn.Module):
    def __init__(self):
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))
        self.route = {(0, 0): 0, (0, 1): 1}

    def forward(self, x):
        for head in range(2):
            x = torch.tanh(self.experts[self.route[0, head]](x))  # VICTIM
        return x


def go(early):
    torch.manual_seed(0)
    net = Routed()
    send = functools.partial(operator.setitem, net.route)
    loss = checkpoint(net, torch.randn(3, 4), use_reentrant=False).sum()
    if early:
        for pair in [(0, 0)]:
            operator.setitem(net.route, pair, 1)  # CULPRIT
    loss.backward()
    send((0, 0), 1)
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
