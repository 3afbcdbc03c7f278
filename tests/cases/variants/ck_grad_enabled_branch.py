"""A layer uses a fast path without gradients, as in the forward of a reentrant checkpoint."""

import warnings

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Norm(nn.Module):
    def __init__(self, dim, branch):
        super().__init__()
        self.w, self.branch = nn.Parameter(torch.rand(dim)), branch

    def forward(self, x):
        if self.branch and not torch.is_grad_enabled():  # CULPRIT
            return x.round(decimals=1) * self.w  # VICTIM
        return x * self.w  # VICTIM


class Block(nn.Module):
    def __init__(self, branch, dim=5):
        super().__init__()
        self.fc, self.norm = nn.Linear(dim, dim), Norm(dim, branch)

    def forward(self, x):
        return torch.tanh(self.norm(self.fc(x)))


def go(branch):
    torch.manual_seed(0)
    block = Block(branch)
    x = torch.randn(3, 5, requires_grad=True)
    checkpoint(block, x, use_reentrant=True).square().sum().backward()
    return {n: p.grad for n, p in block.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
