"""The region seeds torch from a step counter that the training loop moves before backward."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class SeededNoise(nn.Module):
    def __init__(self, dim=4):
        super().__init__()
        self.fc, self.step = nn.Linear(dim, dim), 0

    def forward(self, x):
        g = torch.Generator().manual_seed(self.step)
        return torch.tanh(self.fc(x) + torch.randn(x.shape, generator=g))  # VICTIM


class Loop:
    def __init__(self, net):
        self.net = net

    def advance(self):
        self.net.step += 1  # CULPRIT


def go(early):
    torch.manual_seed(0)
    net = SeededNoise()
    loop = Loop(net)
    y = checkpoint(net, torch.randn(3, 4), use_reentrant=False).sum()
    if early:
        loop.advance()  # ALSO
    y.backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
