"""Scales saved by a foreach product are clipped through .data before backward."""

import torch
from torch import nn


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.weights = nn.ParameterList(torch.randn(3, 4) for _ in range(2))
        self.scales = nn.ParameterList(torch.rand(3, 4) + 0.5 for _ in range(2))

    def forward(self, x):
        scaled = torch._foreach_mul(list(self.weights), list(self.scales))  # VICTIM
        return sum((x @ each.T).tanh() for each in scaled)

    def clip(self):
        for scale in self.scales:
            scale.data.clamp_(0.6, 0.8)  # CULPRIT


def go(early):
    torch.manual_seed(0)
    net = Scaled()
    loss = net(torch.randn(5, 4)).square().sum()
    if early:
        net.clip()  # ALSO
    loss.backward()
    if not early:
        net.clip()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
