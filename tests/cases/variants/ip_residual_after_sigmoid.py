"""The output of a gate is added to in place, to save memory."""

import torch
from torch import nn


class SqueezeExcite(nn.Module):
    def __init__(self, ch, inplace):
        super().__init__()
        self.fc = nn.Conv2d(ch, ch, 1)
        self.inplace = inplace

    def forward(self, x):
        gate = torch.sigmoid(self.fc(x.mean((2, 3), keepdim=True)))  # VICTIM
        if self.inplace:
            gate += 1.0  # CULPRIT
        else:
            gate = gate + 1.0
        return x * gate


class Net(nn.Module):
    def __init__(self, inplace):
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3)
        self.blocks = nn.Sequential(SqueezeExcite(4, False), SqueezeExcite(4, inplace))
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


def go(inplace):
    torch.manual_seed(0)
    net = Net(inplace)
    net(torch.randn(2, 3, 6, 6)).square().sum().backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
