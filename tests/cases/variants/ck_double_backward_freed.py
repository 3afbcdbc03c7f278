"""Two losses through one checkpointed trunk, with two backwards and no retain_graph."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Trunk(nn.Module):
    def __init__(self, dim=5):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(dim, dim), nn.Tanh())

    def forward(self, x):
        return checkpoint(self.body, x, use_reentrant=False)  # VICTIM


def train(net, heads, x, together):
    h = net(x)
    first, second = (head(h).square().mean() for head in heads)
    if together:
        (first + second).backward()
    else:
        first.backward()  # CULPRIT
        second.backward()  # VICTIM


def go(together):
    torch.manual_seed(0)
    net, heads = Trunk(), nn.ModuleList(nn.Linear(5, 1) for _ in range(2))
    train(net, heads, torch.randn(3, 5), together)
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(False)


def reference():
    return go(True)
