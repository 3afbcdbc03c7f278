"""Inputs are normalized through .data for logging, after a custom Function saved them."""

import torch
from torch import nn


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)  # VICTIM
        return x**3

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 3 * x**2 * grad


def log_scale(h, copies):
    shown = h.detach().clone() if copies else h
    shown.data.div_(shown.data.norm())  # CULPRIT
    return float(shown.max())


def go(copies):
    torch.manual_seed(0)
    first, second = nn.Linear(4, 6), nn.Linear(6, 1)
    h = first(torch.randn(5, 4))
    loss = second(Cube.apply(h)).sum()
    log_scale(h, copies)  # ALSO
    loss.backward()
    return {n: p.grad for n, p in first.named_parameters()}


def run():
    return go(False)


def reference():
    return go(True)
