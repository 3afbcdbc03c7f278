"""context_fn gives autocast to the forward, but not to the recomputation."""
import contextlib

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


def bf16():
    return torch.autocast("cpu", dtype=torch.bfloat16)


def one_sided():
    return bf16(), contextlib.nullcontext()  # CULPRIT


def both_sides():
    return bf16(), bf16()


class Wrapped(nn.Module):
    def __init__(self, inner, context_fn):
        super().__init__()
        self.inner, self.context_fn = inner, context_fn

    def forward(self, x):
        return checkpoint(self.inner, x, use_reentrant=False, context_fn=self.context_fn)  # ALSO


class Body(nn.Module):
    def __init__(self, dim=6):
        super().__init__()
        self.up, self.down = nn.Linear(dim, 2 * dim), nn.Linear(2 * dim, dim)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))  # VICTIM


def go(context_fn):
    torch.manual_seed(0)
    net = Wrapped(Body(), context_fn)
    net(torch.randn(4, 6)).float().pow(2).sum().backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(one_sided)


def reference():
    return go(both_sides)
