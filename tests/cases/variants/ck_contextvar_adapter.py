"""The active adapter is a context variable, reset before backward."""

import contextvars

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

active = contextvars.ContextVar("active", default=None)


class AdapterLinear(nn.Module):
    def __init__(self, dim=6):
        super().__init__()
        self.base = nn.Linear(dim, dim)
        self.adapters = nn.ModuleDict({"a": nn.Linear(dim, dim), "b": nn.Linear(dim, dim)})

    def forward(self, x):
        h = self.base(x)
        name = active.get()
        if name is not None:
            h = h + self.adapters[name](x)  # VICTIM
        return torch.tanh(h)


def forward_with(net, x, name, keep):
    token = active.set(name)
    y = checkpoint(net, x, use_reentrant=False)
    if not keep:
        active.reset(token)  # CULPRIT
    return y, token


def go(keep):
    torch.manual_seed(0)
    net = AdapterLinear()
    y, token = forward_with(net, torch.randn(3, 6), "a", keep)
    y.square().sum().backward()
    if keep:
        active.reset(token)
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(False)


def reference():
    return go(True)
