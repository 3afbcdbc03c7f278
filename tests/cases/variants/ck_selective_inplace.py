"""A selective policy saves a product that the region then scales in place."""

from functools import partial

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts


def policy(ctx, op, *args, **kwargs):
    if op in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default):
        return CheckpointPolicy.MUST_SAVE
    return CheckpointPolicy.PREFER_RECOMPUTE


class MLP(nn.Module):
    def __init__(self, inplace, dim=4):
        super().__init__()
        self.a, self.b, self.inplace = nn.Linear(dim, dim), nn.Linear(dim, dim), inplace

    def forward(self, x):
        h = self.a(x)  # VICTIM
        if self.inplace:
            h.mul_(0.5)  # CULPRIT
        else:
            h = h * 0.5
        return self.b(torch.sin(h))  # VICTIM


def go(inplace):
    torch.manual_seed(0)
    net = MLP(inplace)
    context = partial(create_selective_checkpoint_contexts, policy)
    y = checkpoint(net, torch.randn(3, 4), use_reentrant=False, context_fn=context)
    y.sum().backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
