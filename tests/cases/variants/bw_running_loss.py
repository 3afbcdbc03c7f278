"""A moving average of the loss keeps the graphs of all previous steps."""

import torch
from torch import nn


def go(c):
    torch.manual_seed(0)
    net, average = nn.Linear(4, 1), torch.zeros(())
    for _ in range(3):
        loss = net(torch.rand(3, 4)).square().mean()
        scaled = 0.1 * loss  # VICTIM
        carried = average.detach() if not c else average
        average = torch.add(scaled, carried, alpha=0.9)  # CULPRIT
        average.backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
