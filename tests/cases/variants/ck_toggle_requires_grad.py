"""Adapter parameters are frozen between forward and backward of a checkpointed block."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.adapter = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        return torch.tanh(self.fc(x)) + torch.sigmoid(self.adapter(x))  # VICTIM


def freeze(module):
    for p in module.parameters():
        p.requires_grad = False  # CULPRIT


def go(bug):
    torch.manual_seed(0)
    net = Block()
    y = checkpoint(net, torch.randn(2, 4), use_reentrant=False)
    if bug:
        freeze(net.adapter)  # ALSO
    y.sum().backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
