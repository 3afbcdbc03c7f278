"""Layers add themselves to a shared set after initializing their statistics."""
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class State:
    initialized = set()


class ActNorm(nn.Module):
    def __init__(self, name, dim, data_dependent=True):
        super().__init__()
        self.name, self.data_dependent = name, data_dependent
        self.loc, self.logs = nn.Parameter(torch.zeros(dim)), nn.Parameter(torch.zeros(dim))

    def initialize(self, x):
        State.initialized.add(self.name)  # CULPRIT
        return (x - x.mean(0)) / x.std(0)  # VICTIM

    def forward(self, x):
        if self.data_dependent and self.name not in State.initialized:
            x = self.initialize(x)  # ALSO
        return (x + self.loc) * self.logs.exp()


class Flow(nn.Module):
    def __init__(self, dim=4, data_dependent=True):
        super().__init__()
        self.norm, self.mix = ActNorm("flow.0", dim, data_dependent), nn.Linear(dim, dim)

    def forward(self, x):
        return torch.tanh(self.mix(self.norm(x)))


def go(data_dependent):
    torch.manual_seed(0)
    State.initialized.clear()
    net = Flow(data_dependent=data_dependent)
    x = torch.randn(6, 4, requires_grad=True)
    checkpoint(net, x, use_reentrant=False).pow(2).sum().backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
