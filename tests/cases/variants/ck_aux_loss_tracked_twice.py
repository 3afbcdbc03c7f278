"""A router adds its loss to a tracker inside a checkpointed layer: the log contains it twice."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

TRACKER = {}


def track(name, value, layer, layers):
    TRACKER.setdefault(name, torch.zeros(layers))
    TRACKER[name][layer] += value.detach()  # CULPRIT


class Router(nn.Module):
    def __init__(self, layer, outside):
        super().__init__()
        self.layer, self.outside = layer, outside
        self.gate = nn.Linear(6, 3)

    def forward(self, x):
        probabilities = self.gate(x).softmax(-1)
        balance = probabilities.mean(0).square().sum()
        if not self.outside:
            track("balance", balance, self.layer, 2)  # ALSO
        mixed = x * probabilities.amax(-1, keepdim=True)  # VICTIM
        return mixed + balance, balance


def _step(outside):
    torch.manual_seed(0)
    TRACKER.clear()
    routers = nn.ModuleList(Router(layer, outside) for layer in range(2))
    x = torch.randn(10, 6)
    for router in routers:
        x, balance = checkpoint(router, x, use_reentrant=False)
        if outside:
            track("balance", balance, router.layer, 2)
    x.square().mean().backward()
    return {**{n: p.grad for n, p in routers.named_parameters()}, **TRACKER}


def run():
    return _step(False)


def reference():
    return _step(True)
