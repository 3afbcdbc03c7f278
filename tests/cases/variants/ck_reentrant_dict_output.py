"""A reentrant checkpoint around a layer that returns a dict: the result has no graph."""

import warnings

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Layer(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        h = torch.relu(self.fc(x))  # VICTIM
        return {"hidden": h, "norm": h.norm()}


class Net(nn.Module):
    def __init__(self, reentrant, dim=5):
        super().__init__()
        self.stem, self.layer, self.head = nn.Linear(dim, dim), Layer(dim), nn.Linear(dim, 1)
        self.reentrant = reentrant

    def forward(self, x):
        x = self.stem(x)
        out = checkpoint(self.layer, x, use_reentrant=self.reentrant)  # CULPRIT
        return self.head(out["hidden"])


def go(reentrant):
    torch.manual_seed(0)
    net = Net(reentrant)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        net(torch.randn(3, 5)).square().sum().backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
