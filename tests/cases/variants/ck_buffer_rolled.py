"""A memory of keys (XL style) is replaced inside the region: the recomputation uses newer keys."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class XLAttention(nn.Module):
    def __init__(self, keep, dim=4, mem=3):
        super().__init__()
        self.q, self.kv = nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.register_buffer("memory", torch.zeros(mem, dim))
        self.keep = keep

    def forward(self, x):
        context = torch.cat([self.memory, x])
        if self.keep:
            self.memory = context[-self.memory.shape[0] :].detach()  # CULPRIT
        w = (self.q(x) @ self.kv(context).t()).softmax(-1)  # VICTIM
        return w @ context


def go(keep):
    torch.manual_seed(0)
    layer = XLAttention(keep)
    checkpoint(layer, torch.randn(5, 4), use_reentrant=False).square().sum().backward()
    return {n: p.grad for n, p in layer.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
