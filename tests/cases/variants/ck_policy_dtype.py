"""A precision policy changes to bfloat16 between forward and backward."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Policy:
    def __init__(self):
        self.dtype = torch.float32


POLICY = Policy()


class Block(nn.Module):
    def __init__(self, dim, bug):
        super().__init__()
        self.fc = nn.Linear(dim, dim)
        self.bug = bug
        POLICY.dtype = torch.float32

    def forward(self, x):
        h = self.fc(x).to(POLICY.dtype)
        return torch.tanh(h).float()  # VICTIM


def go(bug):
    torch.manual_seed(0)
    net = Block(4, bug)
    y = checkpoint(net, torch.randn(2, 4), use_reentrant=False)
    if bug:
        POLICY.dtype = torch.bfloat16  # CULPRIT
    y.sum().backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
