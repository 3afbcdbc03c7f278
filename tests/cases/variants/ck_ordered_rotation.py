"""An OrderedDict determines the order of turns, and each forward moves the first key to the end."""

import collections

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def __init__(self, dim, bug):
        super().__init__()
        self.fc = nn.Linear(dim, dim)
        self.bug = bug
        self.order = collections.OrderedDict(a=1.0, b=2.0)

    def forward(self, x):
        h = self.fc(x)
        if self.bug:
            name = next(iter(self.order))
            self.order.move_to_end(name)  # CULPRIT
            if name == "a":
                h = torch.sigmoid(h)  # VICTIM
        return torch.tanh(h)


def go(bug):
    torch.manual_seed(0)
    net = Block(4, bug)
    y = checkpoint(net, torch.randn(2, 4), use_reentrant=False)
    pass
    y.sum().backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
