"""A forward hook that scales an activation is removed before backward recomputes the block."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Steer:
    def __init__(self, vector):
        self.vector = vector
        self.handle = None

    def attach(self, module):
        self.handle = module.register_forward_hook(self.add)

    def add(self, module, inputs, output):
        return output * torch.sigmoid(self.vector)  # VICTIM

    def detach(self):
        self.handle.remove()  # CULPRIT


class Block(nn.Module):
    def __init__(self, dim=4):
        super().__init__()
        self.up, self.down = nn.Linear(dim, dim), nn.Linear(dim, dim)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))


def go(early):
    torch.manual_seed(0)
    block, steer = Block(), Steer(nn.Parameter(torch.randn(4)))
    steer.attach(block.up)
    y = checkpoint(block, torch.randn(3, 4), use_reentrant=False)
    if early:
        steer.detach()  # ALSO
    y.square().sum().backward()
    return {n: p.grad for n, p in block.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
