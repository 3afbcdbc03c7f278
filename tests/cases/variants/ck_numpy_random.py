"""NumPy draws the size; checkpoint does not restore its random state."""

import numpy as np
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class L(nn.Module):
    def __init__(s):
        super().__init__()
        s.w = nn.Linear(4, 4)

    def forward(s, x):
        n = np.random.randint(1, 50)  # CULPRIT
        return s.w(x[:, :4].repeat(n, 1)).tanh().mean(0)  # VICTIM


def go(c):
    torch.manual_seed(0)
    np.random.seed(3)
    m = L()
    x = torch.rand(2, 4)
    (checkpoint(m, x, use_reentrant=False) if c else m(x)).sum().backward()
    return {n: None for n, p in m.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
