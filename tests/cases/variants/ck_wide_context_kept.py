"""A user context, kept in a variable, is exited before backward: the default dtype is restored."""

import contextlib

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


@contextlib.contextmanager
def wide():
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)  # ALSO


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        return torch.tanh(self.fc(x) * torch.full((4,), 0.5))  # VICTIM


def go(kept):
    torch.manual_seed(0)
    net = Scaled()
    x = torch.randn(3, 4)
    context = wide() if x.numel() else contextlib.nullcontext()  # ALSO
    with context:  # CULPRIT
        loss = checkpoint(net, x, use_reentrant=False).square().sum()
        if kept:
            loss.backward()
    if not kept:
        loss.backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(False)


def reference():
    return go(True)
