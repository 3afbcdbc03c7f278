"""An LSTM keeps its hidden states in one preallocated tensor, written step by step."""

import torch
from torch import nn


class Roller(nn.Module):
    def __init__(self, dim=3, fixed=False):
        super().__init__()
        self.cell, self.fixed = nn.GRUCell(dim, dim), fixed

    def forward(self, x):
        states = torch.zeros(x.shape[0] + 1, x.shape[1], x.shape[2])
        listed = [states[0]]
        for t in range(x.shape[0]):
            h = self.cell(x[t], listed[t] if self.fixed else states[t])  # VICTIM
            if self.fixed:
                listed.append(h)
            else:
                states[t + 1] = h  # CULPRIT
        return torch.stack(listed[1:]) if self.fixed else states[1:]


def go(fixed):
    torch.manual_seed(0)
    net = Roller(fixed=fixed)
    net(torch.randn(4, 2, 3)).square().sum().backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(False)


def reference():
    return go(True)
