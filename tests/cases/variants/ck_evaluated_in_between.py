"""An evaluation before backward runs the forward of the model again, which sets a flag."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Scale:
    evaluated = False


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.scale = nn.Linear(4, 4), Scale()

    def forward(self, x):
        if not torch.is_grad_enabled():
            self.scale.evaluated = True  # CULPRIT
        h = self.fc(x)
        return torch.tanh(h) if self.scale.evaluated else torch.sigmoid(h)  # VICTIM


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Block()

    def forward(self, x):
        return checkpoint(self.block, x, use_reentrant=False)


def go(early):
    torch.manual_seed(0)
    net = Net()
    x = torch.randn(3, 4)
    loss = net(x).square().sum()
    if early:
        with torch.no_grad():
            net(x)  # ALSO
    loss.backward()
    with torch.no_grad():
        net(x)
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
