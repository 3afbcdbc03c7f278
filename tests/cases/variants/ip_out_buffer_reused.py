"""Every step of a recurrence writes one scratch buffer through out=."""

import torch
from torch import nn


class Cumulative:
    def __init__(self, size):
        self.scratch = torch.zeros(size)

    def mix(self, old, new):
        torch.add(old, new, out=self.scratch)  # CULPRIT
        return self.scratch


def go(reuse):
    torch.manual_seed(0)
    w = nn.Parameter(torch.rand(4))
    steps = torch.rand(3, 4)
    mixer = Cumulative(4)
    total = torch.zeros(4)
    loss = torch.zeros(())
    for step in steps:
        with torch.no_grad():
            total = mixer.mix(total, step) if reuse else total + step
        loss = loss + (w * total).sum()  # VICTIM
    loss.backward()
    return {"w": w.grad}


def run():
    return go(True)


def reference():
    return go(False)
