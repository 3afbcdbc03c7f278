"""A delay line keeps the last inputs in a deque of fixed length: it shifts twice."""

import collections

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Delay(nn.Module):
    def __init__(self, keep, dim=4):
        super().__init__()
        self.fc = nn.Linear(dim, dim)
        self.line = collections.deque([torch.zeros(2, dim)] * 2, maxlen=2) if keep else None

    def forward(self, x):
        past = torch.zeros_like(x) if self.line is None else self.line[0]
        if self.line is not None:
            self.line.append(x.detach())  # CULPRIT
        return torch.tanh(self.fc(x + past))  # VICTIM


def go(keep):
    torch.manual_seed(0)
    net = Delay(keep)
    x1, x2 = torch.randn(2, 4), torch.randn(2, 4)
    a = checkpoint(net, x1, use_reentrant=False)
    b = checkpoint(net, x2, use_reentrant=False)
    (a.sum() + b.sum()).backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
