"""A hidden state keeps the old graph over an optimizer step."""

import torch
from torch import nn


def go(c):
    torch.manual_seed(0)
    cell = nn.GRUCell(3, 4)
    opt = torch.optim.SGD(cell.parameters(), lr=0.1)
    h = torch.zeros(2, 4)
    for _ in range(3):
        h = cell(torch.ones(2, 3), h if c else h.detach())  # CULPRIT
        loss = h.square().sum()
        opt.zero_grad()
        loss.backward(retain_graph=True)
        opt.step()  # ALSO
    return {n: p.grad for n, p in cell.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
