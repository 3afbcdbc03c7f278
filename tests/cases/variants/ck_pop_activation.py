"""A block pops its activation from a list of one element, to free it early."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, holder, free=True):
        x = holder.pop(0) if free else holder[0]  # CULPRIT
        return x + self.mlp(self.norm(x))  # VICTIM


class Net(nn.Module):
    def __init__(self, free, dim=8, depth=2):
        super().__init__()
        self.embed = nn.Linear(4, dim)
        self.blocks = nn.ModuleList(Block(dim) for _ in range(depth))
        self.free = free

    def forward(self, x):
        x = self.embed(x)
        for block in self.blocks:
            x = checkpoint(block, [x], self.free, use_reentrant=False)
        return x


def go(free):
    torch.manual_seed(0)
    net = Net(free)
    net(torch.randn(3, 4)).square().mean().backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
