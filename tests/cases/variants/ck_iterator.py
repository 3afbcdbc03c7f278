"""An iterator advances with every call."""

import itertools

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class L(nn.Module):
    def __init__(s):
        super().__init__()
        s.w = nn.Linear(4, 4)
        s.sizes = itertools.count(1)

    def forward(s, x):
        n = next(s.sizes)  # CULPRIT
        return s.w(x.repeat(n, 1)).tanh()  # VICTIM


def go(c):
    torch.manual_seed(0)
    m = L()
    x = torch.rand(2, 4)
    (checkpoint(m, x, use_reentrant=False) if c else m(x)).sum().backward()
    return {n: p.grad for n, p in m.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
