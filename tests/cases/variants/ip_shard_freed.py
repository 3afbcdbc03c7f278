"""A shard of the weights is freed after forward, and not gathered again for backward."""

import torch
from torch import nn


class Shard:
    def __init__(self, module):
        self.module, self.whole = module, module.weight.detach().clone()

    def gather(self):
        storage = self.module.weight.untyped_storage()
        storage.resize_(self.whole.untyped_storage().size())
        self.module.weight.data.copy_(self.whole)

    def free(self):
        self.module.weight.untyped_storage().resize_(0)  # CULPRIT


def go(bug):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Tanh(), nn.Linear(4, 4, bias=False))
    shard = Shard(net[2])
    shard.gather()
    x = torch.randn(3, 4)
    loss = net(x).square().sum()  # VICTIM
    shard.free() if bug else None  # ALSO
    loss.backward()
    shard.gather()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
