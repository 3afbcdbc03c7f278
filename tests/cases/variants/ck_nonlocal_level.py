"""Two closures share a counter: a hook of another layer increments it, the region reads it."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


def make_level():
    level = 0

    def read():
        return level

    def raise_it(*_):
        nonlocal level
        level += 1  # CULPRIT

    return read, raise_it


class Leveled(nn.Module):
    def __init__(self, read):
        super().__init__()
        self.fc, self.read = nn.Linear(4, 4), read

    def forward(self, x):
        return torch.tanh(self.fc(x) * (1.0 + self.read()))  # VICTIM


def go(hooked):
    torch.manual_seed(0)
    read, raise_it = make_level()
    net, head = Leveled(read), nn.Linear(4, 1)
    if hooked:
        head.register_full_backward_hook(raise_it)  # ALSO
    head(checkpoint(net, torch.randn(3, 4), use_reentrant=False)).sum().backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
