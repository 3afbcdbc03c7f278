"""A pack hook copies every saved activation to one staging buffer, and returns a view of it."""

import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks


class Staging:
    def __init__(self, numel, shared):
        self.shared = shared
        self.buffer = torch.zeros(numel)

    def pack(self, tensor):
        if not self.shared:
            return tensor.detach().clone(), tensor.shape
        view = self.buffer[: tensor.numel()]
        view.copy_(tensor.detach().reshape(-1))  # CULPRIT
        return view, tensor.shape

    def unpack(self, packed):
        flat, shape = packed
        return flat.reshape(shape)


def go(shared):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4), nn.Sigmoid())
    staging = Staging(64, shared)
    x = torch.randn(3, 4)
    with saved_tensors_hooks(staging.pack, staging.unpack):
        out = net(x)  # VICTIM
    out.sum().backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
