"""A mixing weight is drawn by NumPy: equal shapes, different values."""

import numpy as np
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Mixup(nn.Module):
    def __init__(self, alpha):
        super().__init__()
        self.alpha = alpha
        self.enc = nn.Linear(5, 5)

    def draw(self, fixed):
        if fixed:
            return 0.3
        return np.random.beta(self.alpha, self.alpha)  # CULPRIT

    def forward(self, x, fixed):
        lam = self.draw(fixed)
        h = torch.relu(self.enc(x))
        return lam * h * h.flip(0)  # VICTIM


def go(fixed):
    np.random.seed(0)
    torch.manual_seed(0)
    net = Mixup(0.4)
    checkpoint(net, torch.randn(4, 5), fixed, use_reentrant=False).sum().backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(False)


def reference():
    return go(True)
