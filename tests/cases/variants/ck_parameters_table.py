"""A hook clears the _parameters of a layer after the forward."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class AlignHook:
    def __init__(self, module):
        self.module, self.weights = module, dict(module._parameters)

    def post_forward(self):
        for name in list(self.weights):
            empty = torch.zeros_like(self.weights[name])
            self.module._parameters[name] = nn.Parameter(empty)  # CULPRIT


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(4, 8), nn.Linear(8, 4)

    def forward(self, x):
        return self.down(torch.sigmoid(self.up(x)))  # VICTIM


def go(bug):
    torch.manual_seed(0)
    net = Block()
    hook = AlignHook(net.up)
    y = checkpoint(net, torch.randn(2, 4, requires_grad=True), use_reentrant=False)
    if bug:
        hook.post_forward()  # ALSO
    y.square().sum().backward()
    return {n: p.grad for n, p in net.down.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
