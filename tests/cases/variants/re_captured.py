"""A reentrant region reads a gate through a closure; the loss also uses the gate."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


def go(c):
    torch.manual_seed(0)
    net = nn.Linear(4, 4)
    x = torch.rand(3, 4, requires_grad=True)
    gate = net(x).sigmoid()  # VICTIM

    def gated(h):
        return (h * gate).tanh()  # ALSO

    y = checkpoint(gated, x, use_reentrant=c)  # CULPRIT
    (y.sum() + gate.mean()).backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
