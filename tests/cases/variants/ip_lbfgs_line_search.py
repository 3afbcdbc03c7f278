"""A trial step changes the weights, evaluates, and runs backward through the old loss."""

import torch
from torch import nn


class LineSearch:
    def __init__(self, params):
        self.params = list(params)

    @torch.no_grad()
    def move(self, t):
        for p in self.params:
            p -= t * torch.ones_like(p)  # CULPRIT


def go(order):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 1))
    search = LineSearch(net.parameters())
    x = torch.randn(4, 3)
    old = net(x).square().mean()  # VICTIM
    if order:
        search.move(0.1)  # ALSO
        new = net(x).square().mean()
        (old + new).backward()
    else:
        old.backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
