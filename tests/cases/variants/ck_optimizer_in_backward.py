"""The optimizer steps in a post-accumulate hook: a block is recomputed with new weights."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Shared(nn.Module):
    def __init__(self, dim=4):
        super().__init__()
        self.block = nn.Sequential(nn.Linear(dim, dim), nn.Tanh())

    def forward(self, x):
        x = checkpoint(self.block, x, use_reentrant=False)  # VICTIM
        return checkpoint(self.block, x, use_reentrant=False)


def fuse(net, lr):
    def step(p):
        with torch.no_grad():
            p.add_(p.grad, alpha=-lr)  # CULPRIT

    for p in net.parameters():
        p.register_post_accumulate_grad_hook(step)  # ALSO


def go(fused):
    torch.manual_seed(0)
    net = Shared()
    if fused:
        fuse(net, 0.1)
    loss = sum(net(x).square().sum() for x in (torch.randn(2, 4),))
    other = net(torch.randn(2, 4)).sum()
    loss.backward()
    other.backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
