"""A penalty over all weights by one foreach product; the weights are pruned before its backward."""

import torch
from torch import nn


def penalty(weights, importance):
    scaled = torch._foreach_mul(weights, importance)  # VICTIM
    return sum(each.square().sum() for each in scaled)


@torch.no_grad()
def prune(importance, share):
    for each in importance:
        each[each < share] = 0.0  # CULPRIT


def go(early):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2))
    weights = [p for p in net.parameters() if p.dim() > 1]
    importance = [torch.rand_like(w) for w in weights]
    loss = net(torch.randn(3, 4)).square().sum() + penalty(weights, importance)
    if early:
        prune(importance, 0.3)  # ALSO
    loss.backward()
    if not early:
        prune(importance, 0.3)
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
