"""A profiling decorator counts calls, and the block branches on every second call."""
import functools

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


def counted(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        wrapper.calls += 1  # CULPRIT
        return function(*args, **kwargs)

    wrapper.calls = 0
    return wrapper


@counted
def activation(x):
    return torch.tanh(x) if activation.calls % 2 else torch.sigmoid(x) * x  # VICTIM


def plain(x):
    return torch.tanh(x)


class Net(nn.Module):
    def __init__(self, act, dim=5):
        super().__init__()
        self.fc, self.act = nn.Linear(dim, dim), act

    def forward(self, x):
        return self.act(self.fc(x))


def go(act):
    torch.manual_seed(0)
    activation.calls = 0
    net = Net(act)
    checkpoint(net, torch.randn(3, 5), use_reentrant=False).sum().backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(activation)


def reference():
    return go(plain)
