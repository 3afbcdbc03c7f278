"""A teacher is held by a weak reference, and deleted before backward."""

import weakref

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Teacher:
    pass


class Block(nn.Module):
    def __init__(self, dim, bug):
        super().__init__()
        self.fc = nn.Linear(dim, dim)
        self.bug = bug
        self.teacher = lambda: None

    def forward(self, x):
        h = self.fc(x)
        if self.teacher() is not None:
            h = torch.sigmoid(h)  # VICTIM
        return torch.tanh(h)


def go(bug):
    torch.manual_seed(0)
    net = Block(4, bug)
    teacher = Teacher()
    net.teacher = weakref.ref(teacher)
    y = checkpoint(net, torch.randn(2, 4), use_reentrant=False)
    if bug:
        teacher = None  # CULPRIT
    y.sum().backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
