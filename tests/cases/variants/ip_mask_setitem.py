"""Padding is set to zero in a saved output."""

import torch
from torch import nn


def pad(t, fixed):
    t = t.clone() if fixed else t
    t[:, 0] = 0  # CULPRIT
    return t


def go(c):
    torch.manual_seed(0)
    w = nn.Parameter(torch.rand(4, 4))
    x = torch.rand(2, 4)
    h = torch.tanh(x @ w)  # VICTIM
    pad(h, not c).sum().backward()  # ALSO
    return {"w": w.grad}


def run():
    return go(True)


def reference():
    return go(False)
