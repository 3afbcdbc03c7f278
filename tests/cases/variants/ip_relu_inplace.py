"""A saved sigmoid is shifted in place."""

import torch
import torch.nn.functional as F
from torch import nn


def go(c):
    torch.manual_seed(0)
    a = nn.Linear(4, 4)
    x = torch.rand(2, 4)
    h = torch.sigmoid(a(x))  # VICTIM
    y = F.relu(h - 0.5) if not c else F.relu(h.sub_(0.5))  # CULPRIT
    y.sum().backward()
    return {n: p.grad for n, p in a.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
