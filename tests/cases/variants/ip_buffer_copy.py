"""A buffer is refreshed in forward, after an op saved it."""

import torch
from torch import nn


class M(nn.Module):
    def __init__(s):
        super().__init__()
        s.register_buffer("scale", torch.ones(4))
        s.w = nn.Parameter(torch.rand(4))

    def forward(s, x, c):
        y = (s.w * (s.scale if c else s.scale.clone())).exp()  # VICTIM
        s.sync()  # ALSO
        return (y * x).sum()

    def sync(s):
        s.scale.copy_(s.scale * 0.9)  # CULPRIT


def go(c):
    torch.manual_seed(0)
    m = M()
    m(torch.rand(4), c).backward()
    return {"w": m.w.grad}


def run():
    return go(True)


def reference():
    return go(False)
