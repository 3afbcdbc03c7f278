"""A reentrant region detaches its result."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Target(nn.Module):
    def __init__(self, cut, dim=4):
        super().__init__()
        self.fc, self.cut = nn.Linear(dim, dim), cut

    def forward(self, x):
        h = torch.tanh(self.fc(x))  # VICTIM
        return h.detach() if self.cut else h  # CULPRIT


class Net(nn.Module):
    def __init__(self, cut, dim=4):
        super().__init__()
        self.stem, self.target, self.head = nn.Linear(dim, dim), Target(cut), nn.Linear(dim, 1)

    def forward(self, x):
        return self.head(checkpoint(self.target, self.stem(x), use_reentrant=True))  # ALSO


def go(cut):
    torch.manual_seed(0)
    net = Net(cut)
    net(torch.randn(3, 4)).sum().backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
