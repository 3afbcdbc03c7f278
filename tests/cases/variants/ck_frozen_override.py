"""A frozen dataclass is changed with object.__setattr__ by a tuner."""
from dataclasses import dataclass

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


@dataclass(frozen=True)
class Options:
    heads: int = 2
    residual: bool = True


def force(options, name, value):
    object.__setattr__(options, name, value)  # CULPRIT


class Mix(nn.Module):
    def __init__(self, options, dim=8):
        super().__init__()
        self.options, self.fc = options, nn.Linear(dim, dim)

    def forward(self, x):
        b, d = x.shape
        h = self.fc(x).view(b, self.options.heads, -1).softmax(-1)  # VICTIM
        h = h.reshape(b, d)
        return x + h if self.options.residual else h


def go(early):
    torch.manual_seed(0)
    options = Options()
    net = Mix(options)
    loss = checkpoint(net, torch.randn(3, 8), use_reentrant=False).pow(2).sum()
    if early:
        force(options, "heads", 4)  # ALSO
    loss.backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
