"""A layer is appended to a growing network before backward."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def __init__(self, dim, bug):
        super().__init__()
        self.fc = nn.Linear(dim, dim)
        self.bug = bug
        self.more = nn.ModuleList([nn.Tanh()])

    def forward(self, x):
        h = self.fc(x)
        for layer in self.more:
            h = layer(h)
        return h * torch.sigmoid(h)  # VICTIM


def go(bug):
    torch.manual_seed(0)
    net = Block(4, bug)
    y = checkpoint(net, torch.randn(2, 4), use_reentrant=False)
    if bug:
        net.more.append(nn.Sigmoid())  # CULPRIT
    y.sum().backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
