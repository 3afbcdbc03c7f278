"""A projection is constructed inside forward."""

import torch
import torch.nn.functional as F
from torch import nn


class Net(nn.Module):
    def __init__(self, bug):
        super().__init__()
        self.conv = nn.Conv1d(2, 4, 3)
        self.fc = None if bug else nn.Linear(24, 2)

    def forward(self, x):
        x = torch.relu(self.conv(x)).flatten(1)
        fc = self.fc or nn.Linear(x.shape[1], 2)  # CULPRIT
        return fc(x)


def go(bug):
    torch.manual_seed(0)
    net = Net(bug)
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    for _ in range(3):
        opt.zero_grad()
        loss = F.cross_entropy(net(torch.randn(4, 2, 8)), torch.randint(0, 2, (4,)))
        loss.backward()  # VICTIM
        opt.step()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
