"""A bias is computed once per layer, and cached in a WeakKeyDictionary."""

import weakref

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

_BIAS = weakref.WeakKeyDictionary()


class Block(nn.Module):
    def __init__(self, dim, bug):
        super().__init__()
        self.fc = nn.Linear(dim, dim)
        self.bug = bug

    def forward(self, x):
        h = self.fc(x)
        if self.bug:
            if self not in _BIAS:
                _BIAS[self] = torch.tanh(self.fc.bias).exp()  # CULPRIT
            h = h + _BIAS[self]  # ALSO
        else:
            h = h + torch.tanh(self.fc.bias).exp()
        return torch.sigmoid(h)


def go(bug):
    torch.manual_seed(0)
    net = Block(4, bug)
    y = checkpoint(net, torch.randn(2, 4), use_reentrant=False)
    pass
    y.sum().backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
