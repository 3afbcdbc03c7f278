"""A decorator counts the calls of a function, and the count is the temperature of the region."""

import functools

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Softened(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.calls = nn.Linear(4, 4), 0

    def forward(self, x):
        return torch.softmax(self.fc(x) / (1.0 + vars(self)["calls"]), -1)  # VICTIM


def counted(function):
    @functools.wraps(function)
    def wrapper(net, *args):
        vars(net)["calls"] += 1  # CULPRIT
        return function(net, *args)

    return wrapper


@counted
def report(net, loss):
    return f"{loss:.3f}"


def reset(net):
    vars(net)["calls"] = 0


def go(early):
    torch.manual_seed(0)
    net = Softened()
    reset(net)
    loss = checkpoint(net, torch.randn(3, 4), use_reentrant=False).square().sum()
    if early:
        report(net, float(loss.detach()))  # ALSO
    loss.backward()
    report(net, float(loss.detach()))
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
