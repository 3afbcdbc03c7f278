"""The ``append`` of a list is passed as a callback; the region divides by the list length."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Stack(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.history = nn.Linear(4, 4), [0.0]

    def forward(self, x):
        return torch.tanh(self.fc(x) / len(self.history))  # VICTIM


def go(early):
    torch.manual_seed(0)
    stack = Stack()
    report = stack.history.append
    loss = checkpoint(stack, torch.randn(3, 4), use_reentrant=False).sum()
    if early:
        report(float(loss.detach()))  # CULPRIT
    loss.backward()
    report(float(loss.detach()))
    return {n: p.grad for n, p in stack.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
