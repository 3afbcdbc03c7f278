"""A metrics helper changes a singleton of inference settings through a fluent setter."""
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Settings:
    _instance = None

    def __new__(cls):
        if cls._instance is None:
            cls._instance = super().__new__(cls)
            cls._instance.groups = 2
        return cls._instance

    def with_groups(self, n):
        self.groups = n  # CULPRIT
        return self


class Grouped(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        g = Settings().groups
        h = self.fc(x).unflatten(-1, (g, -1))
        return h.softmax(-1).flatten(-2)  # VICTIM


class Metrics:
    @staticmethod
    def probe(net, x):
        Settings().with_groups(4)  # ALSO
        with torch.no_grad():
            return float(net(x).amax())


def go(early):
    torch.manual_seed(0)
    Settings().with_groups(2)
    net, x = Grouped(), torch.randn(3, 8)
    loss = checkpoint(net, x, use_reentrant=False).pow(2).sum()
    if early:
        Metrics.probe(net, x)  # ALSO
    loss.backward()
    if not early:
        Metrics.probe(net, x)
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
