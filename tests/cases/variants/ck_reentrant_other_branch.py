"""A reentrant region runs its other branch the second time: equal shapes, and no check."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Gate(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.seen = nn.Linear(4, 4), {"warm": 0}

    def forward(self, x):
        h = self.fc(x)
        return torch.sin(h) if self.seen["warm"] else torch.tanh(h)  # VICTIM


def note(table, **values):
    table.update(values)  # CULPRIT


def go(early):
    torch.manual_seed(0)
    gate = Gate()
    x = torch.randn(3, 4, requires_grad=True)
    out = checkpoint(gate, x, use_reentrant=True)
    if early:
        note(gate.seen, warm=1)  # ALSO
    out.sum().backward()
    note(gate.seen, warm=1)
    return {n: p.grad for n, p in gate.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
