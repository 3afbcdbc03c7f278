"""A scale is an attribute of the weight, and is measured again before backward."""

import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint


class Fp8Linear(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 4))
        self.weight.scale = 1.0

    def forward(self, x):
        return torch.sigmoid(F.linear(x, self.weight / self.weight.scale))  # VICTIM


def recalibrate(module):
    for p in module.parameters():
        p.scale = float(p.detach().abs().max())  # CULPRIT


def go(bug):
    torch.manual_seed(0)
    net = Fp8Linear()
    y = checkpoint(net, torch.randn(2, 4), use_reentrant=False)
    if bug:
        recalibrate(net)  # ALSO
    y.square().sum().backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
