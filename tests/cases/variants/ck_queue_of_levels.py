"""Noise levels are in a queue.Queue; each forward removes one."""

import queue

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def __init__(self, dim, bug):
        super().__init__()
        self.fc = nn.Linear(dim, dim)
        self.bug = bug
        self.queue = queue.SimpleQueue() if bug == 2 else queue.Queue()
        self.queue.put(1.0)
        self.queue.put(2.0)

    def forward(self, x):
        h = self.fc(x)
        if self.bug:
            level = self.queue.get()  # CULPRIT
            if level == 1.0:
                h = torch.sigmoid(h)  # VICTIM
        return torch.tanh(h)


def go(bug):
    torch.manual_seed(0)
    net = Block(4, bug)
    y = checkpoint(net, torch.randn(2, 4), use_reentrant=False)
    pass
    y.sum().backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
