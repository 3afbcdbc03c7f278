"""An activation saved by the policy is normalized in place after the region."""

from functools import partial

import torch
from torch import nn
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)


def policy(ctx, op, *args, **kwargs):
    if op == torch.ops.aten.addmm.default:
        return CheckpointPolicy.MUST_SAVE
    return CheckpointPolicy.PREFER_RECOMPUTE


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)

    def forward(self, x):
        h = self.lin(x)  # VICTIM
        return h, h.exp().sin()


def go(c):
    torch.manual_seed(0)
    block = Block()
    contexts = partial(create_selective_checkpoint_contexts, policy)
    h, y = checkpoint(block, torch.rand(3, 4), use_reentrant=False, context_fn=contexts)
    with torch.no_grad():
        stats = h if c else h.clone()
        stats.sub_(stats.mean(0))  # CULPRIT
    y.sum().backward()
    return {n: p.grad for n, p in block.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
