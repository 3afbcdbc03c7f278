"""Features are passed to another framework by DLPack, which normalizes them in place."""

import torch
from torch import nn


class Exchange:
    def __init__(self, copies):
        self.copies = copies

    def send(self, h):
        given = h.detach().clone() if self.copies else h.detach()
        other = torch.from_dlpack(given)
        other.sub_(other.mean(0))  # CULPRIT
        return other


def go(copies):
    torch.manual_seed(0)
    first, second = nn.Linear(4, 6), nn.Linear(6, 2)
    h = first(torch.randn(3, 4))
    loss = second(h.sin()).square().sum()  # VICTIM
    Exchange(copies).send(h)  # ALSO
    loss.backward()
    return {n: p.grad for n, p in first.named_parameters()}


def run():
    return go(False)


def reference():
    return go(True)
