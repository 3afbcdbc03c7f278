"""Adapters are held by weak references; the last strong reference is deleted before backward."""

import weakref

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Adapter:
    def __init__(self, scale):
        self.scale = scale


_ADAPTERS = weakref.WeakValueDictionary()


class Block(nn.Module):
    def __init__(self, dim, bug):
        super().__init__()
        self.fc = nn.Linear(dim, dim)
        self.bug = bug

    def forward(self, x):
        h = self.fc(x)
        adapter = _ADAPTERS.get("main")
        if adapter is not None:
            h = torch.sigmoid(h) * adapter.scale  # VICTIM
        return torch.tanh(h)


def go(bug):
    torch.manual_seed(0)
    net = Block(4, bug)
    keep = Adapter(2.0)
    _ADAPTERS["main"] = keep
    y = checkpoint(net, torch.randn(2, 4), use_reentrant=False)
    if bug:
        del keep  # CULPRIT
    y.sum().backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
