"""A context manager based on a generator is exited before the region runs again."""

import contextlib

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

MODE = {"wide": False}


@contextlib.contextmanager
def wide():
    MODE["wide"] = True
    try:
        yield
    finally:
        MODE["wide"] = False


class L(nn.Module):
    def __init__(s):
        super().__init__()
        s.w = nn.Linear(4, 4)

    def forward(s, x):
        if MODE["wide"]:
            x = x.repeat(2, 1)
        return s.w(x).tanh()  # VICTIM


def go(c):
    torch.manual_seed(0)
    m = L()
    x = torch.rand(2, 4)
    with wide():  # CULPRIT
        y = checkpoint(m, x, use_reentrant=False) if c else m(x)
    y.sum().backward()
    return {n: p.grad for n, p in m.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
