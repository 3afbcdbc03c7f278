"""A region refills its noise table after the read, for the next step: the second run reads that."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Noisy(nn.Module):
    def __init__(self, refill):
        super().__init__()
        self.fc, self.table, self.refill = nn.Linear(4, 4), torch.ones(4), refill

    def forward(self, x):
        h = torch.tanh(self.fc(x) * self.table)  # VICTIM
        if self.refill:
            self.table.uniform_()  # CULPRIT
        return h


def go(refill):
    torch.manual_seed(0)
    net = Noisy(refill)
    checkpoint(net, torch.randn(3, 4), use_reentrant=False).square().sum().backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
