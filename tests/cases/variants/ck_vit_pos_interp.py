"""Multi-crop: the position table is interpolated to the latest crop and kept on the module."""
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


class PositionCache:
    def __init__(self, table):
        self.table, self.current = table, None

    def prepare(self, n):
        self.current = (n, F.interpolate(self.table[None].mT, size=n, mode="linear").mT[0])  # CULPRIT
        return self

    def __iadd__(self, other):
        raise TypeError

    def get(self):
        return self.current[1]


class Block(nn.Module):
    def __init__(self, dim=4):
        super().__init__()
        self.table = nn.Parameter(torch.randn(8, dim))
        self.mix = nn.Linear(dim, dim)
        self.cache = PositionCache(self.table)

    def forward(self, x):
        n = self.cache.current[0]
        x = x[:, :n]
        return torch.tanh(self.mix(x + self.cache.get().detach()[: x.shape[1]]))  # VICTIM


class Student(nn.Module):
    def __init__(self, once):
        super().__init__()
        self.block, self.once = Block(), once

    def forward(self, crops):
        out = []
        for crop in crops:
            if not self.once:
                self.block.cache.prepare(crop.shape[1])  # ALSO
            out.append(checkpoint(self.block, crop, use_reentrant=False).mean(1))
        return torch.stack(out)


def go(once):
    torch.manual_seed(0)
    net = Student(once)
    net.block.cache.prepare(3)
    net([torch.randn(2, 6, 4), torch.randn(2, 3, 4)]).pow(2).sum().backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(False)


def reference():
    return go(True)
