"""A dropout mask that is kept for a sequence is deleted before backward, and drawn again."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class LockedDropout(nn.Module):
    def __init__(self, bug):
        super().__init__()
        self.mask, self.bug, self.fc = None, bug, nn.Linear(4, 4)

    def reset(self):
        self.mask = None  # CULPRIT

    def forward(self, x):
        if self.mask is None:
            self.mask = torch.bernoulli(torch.full_like(x, 0.5))
        return torch.sigmoid(self.fc(x)) * self.mask  # VICTIM


def go(bug):
    torch.manual_seed(0)
    net = LockedDropout(bug)
    net.mask = torch.ones(2, 4)
    y = checkpoint(net, torch.randn(2, 4), use_reentrant=False)
    if bug:
        net.reset()  # ALSO
    y.sum().backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
