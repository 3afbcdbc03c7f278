"""The training phase, an enum in a shared configuration, changes before backward."""

import enum
import types

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Phase(enum.IntEnum):
    WARM = 0
    MAIN = 1


CONFIG = types.SimpleNamespace(phase=Phase.WARM)


class Block(nn.Module):
    def __init__(self, dim, bug):
        super().__init__()
        self.fc = nn.Linear(dim, dim)
        self.bug = bug
        CONFIG.phase = Phase.WARM

    def forward(self, x):
        h = self.fc(x)
        if CONFIG.phase == Phase.WARM:
            h = torch.sigmoid(h)  # VICTIM
        return torch.tanh(h)


def go(bug):
    torch.manual_seed(0)
    net = Block(4, bug)
    y = checkpoint(net, torch.randn(2, 4), use_reentrant=False)
    if bug:
        CONFIG.phase = Phase.MAIN  # CULPRIT
    y.sum().backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
