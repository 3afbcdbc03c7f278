"""Saved tensors are stored by their size: two of equal size share a key."""

import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks


class Store:
    def __init__(self, bug):
        self.bug, self.kept, self.count = bug, {}, 0

    def pack(self, t):
        self.count += 1
        key = t.numel() if self.bug else self.count  # CULPRIT
        self.kept[key] = t.detach().clone()
        return key

    def unpack(self, key):
        return self.kept[key]


def go(bug):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4), nn.Sigmoid())
    store = Store(bug)
    with saved_tensors_hooks(store.pack, store.unpack):
        loss = net(torch.randn(4, 4)).square().sum()  # VICTIM
    loss.backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
