"""Every third call skips the gate; the counter is incremented twice per step."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def __init__(self, skip):
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.calls, self.skip = 0, skip

    def forward(self, x):
        h = torch.tanh(self.fc(x))
        if self.skip:
            self.calls += 1  # CULPRIT
            if self.calls % 4 == 3:
                return h
        return h * torch.sigmoid(h)  # VICTIM


def go(skip):
    torch.manual_seed(0)
    net = Block(skip)
    checkpoint(net, torch.randn(2, 4), use_reentrant=False).sum().backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
