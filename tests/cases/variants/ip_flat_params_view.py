"""Flat parameters (FSDP-like): an update writes the flat buffer whose views are the weights."""
import torch
from torch import nn
from torch.nn import functional as F


class Flat(nn.Module):
    def __init__(self):
        super().__init__()
        self.flat = nn.Parameter(torch.randn(4 * 6 + 6 * 2) * 0.1)

    def views(self):
        return self.flat[:24].view(6, 4), self.flat[24:].view(2, 6)

    def forward(self, x):
        a, b = self.views()
        return F.linear(torch.tanh(F.linear(x, a)), b)  # VICTIM


class Sharded:
    def __init__(self, module, parts):
        self.module, self.parts = module, parts

    def update(self, lr):
        with torch.no_grad():
            for i, shard in enumerate(self.module.flat.chunk(self.parts)):
                shard.sub_(lr * (i + 1))  # CULPRIT


def go(early):
    torch.manual_seed(0)
    net = Flat()
    shards = Sharded(net, 3)
    loss = net(torch.randn(5, 4)).pow(2).mean()
    if early:
        shards.update(0.01)  # ALSO
    loss.backward()
    if not early:
        shards.update(0.01)
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
