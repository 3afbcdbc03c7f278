"""Weights are initialized again in place with gradients enabled."""

import torch
from torch import nn


def reset(layer, safe):
    if safe:
        with torch.no_grad():
            layer.weight.uniform_(-0.1, 0.1)
    else:
        layer.weight.uniform_(-0.1, 0.1)  # CULPRIT


def go(safe):
    torch.manual_seed(0)
    net = nn.Linear(4, 2)
    reset(net, safe)  # ALSO
    net(torch.randn(3, 4)).sum().backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(False)


def reference():
    return go(True)
