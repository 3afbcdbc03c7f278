"""The loss-scaler factor is read inside the region, and updated before the second backward."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

STATE = {"scale": 8.0}


def scaled(x):
    return x * STATE["scale"]  # VICTIM


class Head(nn.Module):
    def __init__(self, dim=4):
        super().__init__()
        self.fc = nn.Linear(dim, 1)

    def forward(self, x):
        return scaled(torch.sigmoid(self.fc(x))).square()  # VICTIM


def update_scale():
    STATE["scale"] /= 2  # CULPRIT


def go(early):
    STATE["scale"] = 8.0
    torch.manual_seed(0)
    head = Head()
    a = checkpoint(head, torch.randn(3, 4), use_reentrant=False).sum()
    b = checkpoint(head, torch.randn(3, 4), use_reentrant=False).sum()
    a.backward()
    if early:
        update_scale()  # ALSO
    b.backward()
    return {n: p.grad for n, p in head.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
