"""Straight-through binarization that returns None where the gradient of the input belongs."""

import torch
import torch.nn.functional as F
from torch import nn


class Binarize(torch.autograd.Function):
    @staticmethod
    def forward(ctx, threshold, x):
        ctx.save_for_backward(x)
        return (x > threshold).to(x.dtype)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * (x.abs() <= 1), None  # CULPRIT


class BinarizeFixed(Binarize):
    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return None, grad * (x.abs() <= 1)


class BNN(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.fc1, self.fc2, self.function = nn.Linear(6, 8), nn.Linear(8, 2), function

    def forward(self, x):
        return self.fc2(self.function.apply(0.0, self.fc1(x)))  # VICTIM


def go(function):
    torch.manual_seed(0)
    net = BNN(function)
    F.cross_entropy(net(torch.randn(7, 6)), torch.randint(0, 2, (7,))).backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(Binarize)


def reference():
    return go(BinarizeFixed)
