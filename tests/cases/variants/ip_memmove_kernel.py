"""A custom kernel writes through the data pointer, without a version bump."""

import ctypes

import torch
from torch import nn


def fused_scale(tensor, factor):
    view = (ctypes.c_float * tensor.numel()).from_address(tensor.data_ptr())
    for i in range(tensor.numel()):
        view[i] *= factor  # CULPRIT
    return tensor


def go(fused):
    torch.manual_seed(0)
    net, head = nn.Linear(4, 4), nn.Linear(4, 1)
    h = torch.tanh(net(torch.randn(3, 4)))  # VICTIM
    h = fused_scale(h, 0.5) if fused else h * 0.5  # ALSO
    head(h).sum().backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
