"""Binary weights are set by .data for the forward, and removed before its backward."""

import torch
from torch import nn


class Binary:
    def __init__(self, module):
        self.module, self.real = module, module.weight.data

    def __enter__(self):
        self.module.weight.data = self.real.sign()

    def __exit__(self, *error):
        self.module.weight.data = self.real  # CULPRIT


def go(inside):
    torch.manual_seed(0)
    first, conv = nn.Conv1d(1, 2, 3), nn.Conv1d(2, 1, 3)
    x = torch.randn(4, 1, 8)
    with Binary(conv):
        loss = conv(first(x).tanh()).square().sum()  # VICTIM
        if inside:
            loss.backward()
    if not inside:
        loss.backward()
    return {n: p.grad for n, p in first.named_parameters()}


def run():
    return go(False)


def reference():
    return go(True)
