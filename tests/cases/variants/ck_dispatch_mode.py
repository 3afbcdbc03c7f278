"""A dispatch mode that rounds matrix products wraps the forward only."""

from torch.utils._python_dispatch import TorchDispatchMode

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Rounded(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if func is torch.ops.aten.addmm.default:
            out = out.round(decimals=1)
        return out


class MLP(nn.Module):
    def __init__(self, dim=5):
        super().__init__()
        self.a, self.b = nn.Linear(dim, dim), nn.Linear(dim, dim)

    def forward(self, x):
        return self.b(torch.sigmoid(self.a(x)))  # VICTIM


def go(inside):
    torch.manual_seed(0)
    net = MLP()
    x = torch.randn(3, 5)
    if inside:
        with Rounded():
            checkpoint(net, x, use_reentrant=False).sum().backward()
    else:
        with Rounded():  # CULPRIT
            y = checkpoint(net, x, use_reentrant=False)
        y.sum().backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(False)


def reference():
    return go(True)
