"""A callback changes the dropout rate before backward: the recomputed mask differs."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Net(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.fc, self.drop, self.out = nn.Linear(dim, dim), nn.Dropout(0.2), nn.Linear(dim, 1)

    def forward(self, x):
        h = torch.relu(self.fc(x))
        h = self.drop(h)  # VICTIM
        return self.out(h)


class Ramp:
    def __init__(self, net):
        self.net = net

    def on_step(self, rate):
        for module in self.net.modules():
            if isinstance(module, nn.Dropout):
                module.p = rate  # CULPRIT


def go(early):
    torch.manual_seed(0)
    net = Net()
    ramp = Ramp(net)
    y = checkpoint(net, torch.randn(4, 8), use_reentrant=False).sum()
    if early:
        ramp.on_step(0.7)  # ALSO
    y.backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
