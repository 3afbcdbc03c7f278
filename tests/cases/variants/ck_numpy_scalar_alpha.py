"""A fade-in weight, a NumPy scalar, is increased before backward."""

import numpy as np
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def __init__(self, dim, bug):
        super().__init__()
        self.fc = nn.Linear(dim, dim)
        self.bug = bug
        self.alpha = np.float32(0.0)

    def forward(self, x):
        h = self.fc(x)
        if self.alpha == 0:
            h = torch.sigmoid(h)  # VICTIM
        return torch.tanh(h)


def go(bug):
    torch.manual_seed(0)
    net = Block(4, bug)
    y = checkpoint(net, torch.randn(2, 4), use_reentrant=False)
    if bug:
        net.alpha += np.float32(0.1)  # CULPRIT
    y.sum().backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
