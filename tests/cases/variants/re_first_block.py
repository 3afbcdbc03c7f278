"""The first block is checkpointed with use_reentrant=True: its input needs no gradient."""

import warnings

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Stem(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(4, 4)

    def forward(self, x):
        return self.proj(x).relu()  # VICTIM


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.head = Stem(), nn.Linear(4, 1)

    def forward(self, x, c):
        h = checkpoint(self.stem, x, use_reentrant=True) if c else self.stem(x)  # CULPRIT
        return self.head(h)


def go(c):
    torch.manual_seed(0)
    net = Net()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        net(torch.rand(2, 4), c).sum().backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
