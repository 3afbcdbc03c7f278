"""Parameters are freed after forward, and gathered again later: recomputation finds them empty."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Sharded:
    def __init__(self, module):
        self.module, self.full = module, {}

    def free(self):
        for name, p in self.module.named_parameters():
            self.full[name] = p.data
            p.data = torch.empty(0)  # CULPRIT

    def gather(self):
        for name, p in self.module.named_parameters():
            p.data = self.full[name]


def go(forgot):
    torch.manual_seed(0)
    block = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
    shard = Sharded(block)
    y = checkpoint(block, torch.randn(2, 4), use_reentrant=False)  # VICTIM
    shard.free()  # ALSO
    if not forgot:
        shard.gather()
    y.square().sum().backward()
    return {n: p.grad for n, p in block.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
