"""A load-balancing loss is stored in an attribute inside a reentrant region."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Router(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(4, 4)
        self.balance = None

    def forward(self, x):
        p = self.gate(x).softmax(-1)
        spread = p.mean(0).square().sum()
        self.balance = spread  # VICTIM
        return x * p


def go(c):
    torch.manual_seed(0)
    router = Router()
    x = torch.rand(3, 4, requires_grad=True)
    y = checkpoint(router, x, use_reentrant=c)  # CULPRIT
    loss = y.square().mean() + 0.1 * router.balance  # ALSO
    loss.backward()
    return {n: p.grad for n, p in router.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
