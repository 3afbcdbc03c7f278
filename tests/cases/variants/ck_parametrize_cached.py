"""Parametrized weights are cached only during the forward; recomputation builds them again."""
import torch
from torch import nn
from torch.nn.utils import parametrize
from torch.utils.checkpoint import checkpoint


class Symmetric(nn.Module):
    def forward(self, w):
        return torch.tanh(w.triu() + w.triu(1).T)


class Pair(nn.Module):
    def __init__(self, dim=6):
        super().__init__()
        self.fc = nn.Linear(dim, dim)
        parametrize.register_parametrization(self.fc, "weight", Symmetric())

    def forward(self, x):
        for _ in range(2):
            x = torch.sigmoid(self.fc(x))  # VICTIM
        return x


def forward_cached(net, x):
    with parametrize.cached():  # CULPRIT
        net.fc.weight
        return checkpoint(net, x, use_reentrant=False)  # ALSO


def forward_plain(net, x):
    return checkpoint(net, x, use_reentrant=False)


def go(forward):
    torch.manual_seed(0)
    net = Pair()
    forward(net, torch.randn(3, 6)).sum().backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(forward_cached)


def reference():
    return go(forward_plain)
