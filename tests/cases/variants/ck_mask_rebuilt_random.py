"""Random masking by torch.randperm under fork: the loop resets the generator of the region."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

GEN = torch.Generator()


def random_mask(n, ratio):
    order = torch.randperm(n, generator=GEN)  # CULPRIT
    return order < int(n * ratio)


class MAE(nn.Module):
    def __init__(self, dim=4):
        super().__init__()
        self.enc = nn.Linear(dim, dim)

    def forward(self, x, fixed):
        keep = torch.arange(x.shape[0]) < 4 if fixed else random_mask(x.shape[0], 0.5)
        return torch.tanh(self.enc(x[keep]))  # VICTIM


def go(fixed):
    GEN.manual_seed(0)
    torch.manual_seed(0)
    net = MAE()
    checkpoint(net, torch.randn(8, 4), fixed, use_reentrant=False).sum().backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(False)


def reference():
    return go(True)
