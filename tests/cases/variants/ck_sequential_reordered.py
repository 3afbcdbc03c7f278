"""checkpoint_sequential keeps the given list, and the caller reverses it before backward."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint_sequential


class Step(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 3)

    def forward(self, x):
        return torch.sin(self.fc(x))  # VICTIM


class Stack(nn.Module):
    def __init__(self):
        super().__init__()
        self.steps = nn.ModuleList(Step() for _ in range(3))
        self.plan = list(self.steps)

    def forward(self, x):
        return checkpoint_sequential(self.plan, 2, input=x, use_reentrant=False)

    def backwards(self):
        self.plan.reverse()  # CULPRIT


def go(early):
    torch.manual_seed(0)
    stack = Stack()
    loss = stack(torch.rand(2, 3, requires_grad=True)).sum()
    if early:
        stack.backwards()
    loss.backward()
    return {n: p.grad for n, p in stack.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
