"""Masks are attributes of a dataclass argument, updated in place for the next micro-batch."""
from dataclasses import dataclass

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


@dataclass
class Batch:
    x: torch.Tensor
    length: int

    def load(self, x, length):
        self.x, self.length = x, length  # CULPRIT
        return self


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, batch):
        return torch.tanh(self.fc(batch.x[:, : batch.length])).mean()  # VICTIM


def go(share):
    torch.manual_seed(0)
    net, parts = Net(), [(torch.randn(2, 6, 4), n) for n in (3, 5)]
    batch, total = Batch(None, 0), 0
    for x, n in parts:
        batch = batch if share else Batch(None, 0)
        total = total + checkpoint(net, batch.load(x, n), use_reentrant=False)  # ALSO
    total.backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
