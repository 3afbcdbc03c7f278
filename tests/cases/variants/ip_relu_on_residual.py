"""An in-place ReLU after an addition whose result a sigmoid gate saved."""

import torch
from torch import nn


class GatedBlock(nn.Module):
    def __init__(self, inplace, ch=4):
        super().__init__()
        self.conv, self.act = nn.Conv2d(ch, ch, 3, padding=1), nn.ReLU(inplace=inplace)

    def forward(self, x):
        y = self.conv(x) + x
        gate = y * torch.sigmoid(y)  # VICTIM
        return self.act(y) + gate  # CULPRIT


def go(inplace):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 4, 1), GatedBlock(inplace), nn.Flatten(), nn.LazyLinear(1))
    x = torch.randn(2, 3, 5, 5)
    net(x).sum().backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
