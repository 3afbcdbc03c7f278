"""Gradient clipping writes weights, not gradients: a typo between two backwards."""

import torch
from torch import nn


def clip(params, limit):
    with torch.no_grad():
        for p in params:
            p.clamp_(-limit, limit)  # CULPRIT


def go(wrong):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2))
    x = torch.randn(3, 4)
    out = net(x)  # VICTIM
    out[:, 0].sum().backward(retain_graph=True)
    if wrong:
        clip(net.parameters(), 0.1)  # ALSO
    out[:, 1].sum().backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
