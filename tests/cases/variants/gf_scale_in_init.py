"""A kernel's length scale is exponentiated once, in the constructor."""

import torch
import torch.nn.functional as F
from torch import nn


class RBFKernel(nn.Module):
    def __init__(self, bug):
        super().__init__()
        self.log_scale = nn.Parameter(torch.tensor(0.1))
        self.bug = bug
        if bug:
            self.scale = torch.exp(self.log_scale)  # CULPRIT

    def forward(self, a, b):
        scale = self.scale if self.bug else torch.exp(self.log_scale)
        return torch.exp(-torch.cdist(a, b).pow(2) / (2 * scale**2))


class Regressor(nn.Module):
    def __init__(self, points, bug):
        super().__init__()
        self.points = points
        self.kernel = RBFKernel(bug)
        self.alpha = nn.Parameter(torch.zeros(len(points)))

    def forward(self, x):
        return self.kernel(x, self.points) @ self.alpha


def go(bug):
    torch.manual_seed(0)
    points = torch.randn(5, 2)
    net = Regressor(points, bug)
    opt = torch.optim.Adam(net.parameters(), lr=0.1)
    x, y = torch.randn(9, 2), torch.randn(9)
    for _ in range(3):
        opt.zero_grad()
        loss = F.mse_loss(net(x), y)
        loss.backward()
        opt.step()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
