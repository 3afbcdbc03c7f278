"""Random blocks of a sparse attention are selected by numpy.random.choice."""

import numpy as np
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


def pick_blocks(n, k):
    return np.random.choice(n, k, replace=False)  # CULPRIT


class Sparse(nn.Module):
    def __init__(self, random, dim=4):
        super().__init__()
        self.q, self.k, self.random = nn.Linear(dim, dim), nn.Linear(dim, dim), random

    def forward(self, x):
        blocks = torch.as_tensor(pick_blocks(x.shape[0], 3) if self.random else np.arange(3))
        return (self.q(x) @ self.k(x[blocks]).t()).softmax(-1) @ x[blocks]  # VICTIM


def go(random):
    np.random.seed(1)
    torch.manual_seed(0)
    net = Sparse(random)
    checkpoint(net, torch.randn(8, 4), use_reentrant=False).square().sum().backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
