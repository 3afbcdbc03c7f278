"""The backbone is frozen for the warm-up; only its last block is unfrozen."""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
        self.head = nn.Linear(4, 1)

    def forward(self, x):
        for layer in self.backbone:
            x = torch.tanh(layer(x))  # VICTIM
        return self.head(x)


def go(bug):
    torch.manual_seed(0)
    net = Net()
    x = torch.randn(3, 4)
    for p in net.backbone.parameters():
        p.requires_grad_(False)  # CULPRIT
    net(x).sum().backward()
    for p in (net.backbone[-1] if bug else net.backbone).parameters():
        p.requires_grad_(True)  # ALSO
    net.zero_grad()
    net(x).sum().backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
