"""The default dtype changes between forward and recomputation."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class L(nn.Module):
    def __init__(s):
        super().__init__()
        s.w = nn.Parameter(torch.rand(4))

    def forward(s, x):
        return (s.w * torch.linspace(0, 1, 4)).exp() * x  # VICTIM


def go(c):
    torch.manual_seed(0)
    m = L()
    x = torch.rand(2, 4)
    y = checkpoint(m, x, use_reentrant=False) if c else m(x)
    torch.set_default_dtype(torch.float64)  # CULPRIT
    try:
        y.sum().backward()
    finally:
        torch.set_default_dtype(torch.float32)
    return {n: p.grad for n, p in m.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
