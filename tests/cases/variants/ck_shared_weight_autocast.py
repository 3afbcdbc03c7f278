"""Selective checkpoint under autocast: the second region finds the weight in the autocast cache."""

from functools import partial

import torch
from torch import nn
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)


SAVE = {torch.ops.aten.addmm.default, torch.ops.aten.mm.default}


def policy(ctx, op, *args, **kwargs):
    return CheckpointPolicy.MUST_SAVE if op in SAVE else CheckpointPolicy.PREFER_RECOMPUTE


class Siamese(nn.Module):
    def __init__(self, d=6):
        super().__init__()
        self.inp = nn.Linear(d, d)
        self.shared = nn.Linear(d, d)

    def tower(self, x):
        return torch.tanh(self.shared(x))  # VICTIM

    def forward(self, left, right):
        context_fn = partial(create_selective_checkpoint_contexts, policy)
        a = checkpoint(
            self.tower, self.inp(left), use_reentrant=False, context_fn=context_fn
        )  # ALSO
        b = checkpoint(
            self.tower, self.inp(right), use_reentrant=False, context_fn=context_fn
        )  # ALSO
        return (a - b).float().square().sum()


def training_step(net, left, right, cache):
    with torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=cache):  # CULPRIT
        loss = net(left, right)
    loss.backward()


def _step(cache):
    torch.manual_seed(0)
    net = Siamese()
    training_step(net, torch.randn(3, 6), torch.randn(3, 6), cache)  # ALSO
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return _step(True)


def reference():
    return _step(False)
