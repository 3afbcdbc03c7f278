"""A frozen feature extractor detaches inside a reentrant region."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Frozen(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.Linear(4, 4)

    def forward(self, x):
        with torch.no_grad():  # CULPRIT
            return self.f(x).tanh()  # VICTIM


def go(c):
    torch.manual_seed(0)
    net, head = Frozen(), nn.Linear(4, 1)
    x = torch.rand(3, 4, requires_grad=True)
    h = checkpoint(net, x, use_reentrant=True) if c else net(x)  # ALSO
    head(h).sum().backward()
    return {"w": head.weight.grad}


def run():
    return go(True)


def reference():
    return go(False)
