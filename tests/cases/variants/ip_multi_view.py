"""One result of an unbind is written in place: the others are views of the same tensor."""

import torch
from torch import nn


class Rope(nn.Module):
    def __init__(self, inplace, dim=4):
        super().__init__()
        self.qkv, self.inplace = nn.Linear(dim, 3 * dim), inplace

    def forward(self, x):
        q, k, v = self.qkv(x).view(-1, 3, 4).unbind(1)  # VICTIM
        if self.inplace:
            q *= 0.5  # CULPRIT
        else:
            q = q * 0.5
        return (q @ k.t()).softmax(-1) @ v


def go(inplace):
    torch.manual_seed(0)
    net = Rope(inplace)
    net(torch.randn(3, 4)).square().sum().backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
