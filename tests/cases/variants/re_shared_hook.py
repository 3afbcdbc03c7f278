"""A tied weight with a hook that clips, in two reentrant regions."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


def clip(g):
    return g.clamp(-0.1, 0.1)


def go(c):
    torch.manual_seed(0)
    tied = nn.Linear(4, 4)
    x = torch.rand(3, 4, requires_grad=True)
    handle = tied.weight.register_hook(clip)  # ALSO
    for _ in range(2):
        x = checkpoint(tied, x, use_reentrant=c)  # CULPRIT
    x.sum().backward()
    handle.remove()
    return {n: p.grad for n, p in tied.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
