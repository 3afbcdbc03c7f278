"""Parameters are frozen between forward and recomputation."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class L(nn.Module):
    def __init__(s):
        super().__init__()
        s.a = nn.Linear(4, 4)
        s.b = nn.Linear(4, 4)

    def forward(s, x):
        return s.b(s.a(x).tanh()).tanh()  # VICTIM


def freeze(m):
    for p in m.a.parameters():
        p.requires_grad_(False)  # CULPRIT


def go(c):
    torch.manual_seed(0)
    m = L()
    x = torch.rand(2, 4)
    y = checkpoint(m, x, use_reentrant=False) if c else m(x)
    freeze(m)  # ALSO
    y.sum().backward()
    return {n: None for n, p in m.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
