"""A pager gives activations other memory with set_, and backward reads the new memory."""

import torch
from torch import nn


class Pager:
    def __init__(self, waits):
        self.waits, self.held = waits, []

    def keep(self, h):
        self.held.append(h)
        return h

    @torch.no_grad()
    def flush(self):
        for h in self.held:
            h.set_(torch.zeros_like(h))  # CULPRIT
        self.held.clear()


def go(waits):
    torch.manual_seed(0)
    first, second, pager = nn.Linear(4, 6), nn.Linear(6, 2), Pager(waits)
    h = pager.keep(first(torch.randn(3, 4)))
    loss = second(nn.functional.gelu(h)).square().sum()  # VICTIM
    if not pager.waits:
        pager.flush()  # ALSO
    loss.backward()
    pager.flush()
    return {n: p.grad for n, p in first.named_parameters()}


def run():
    return go(False)


def reference():
    return go(True)
