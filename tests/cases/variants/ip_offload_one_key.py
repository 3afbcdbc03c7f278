"""Activation offload stores a tensor and its transpose under one key."""

import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks


class OffloadHandler:
    def __init__(self, view_aware):
        self.view_aware = view_aware
        self.copies, self.sources = {}, []

    def key_of(self, t):
        if self.view_aware:
            return t.data_ptr(), t.dtype, t.shape, t.stride()
        return t.untyped_storage().data_ptr(), t.dtype  # CULPRIT

    def tensor_push(self, t):
        key = self.key_of(t)  # ALSO
        if key not in self.copies:
            self.copies[key] = t.detach().clone(memory_format=torch.contiguous_format)
            self.sources.append(t.detach())  # kept alive until the copies are complete
        return key, t.shape

    def tensor_pop(self, packed):
        key, shape = packed
        return self.copies[key].reshape(shape)  # ALSO


class GramAttention(nn.Module):
    def __init__(self, d=6):
        super().__init__()
        self.proj, self.out = nn.Linear(d, d), nn.Linear(d, d)

    def forward(self, x):
        h = torch.tanh(self.proj(x))
        gram = h @ h.t()  # VICTIM
        return self.out(gram.softmax(-1) @ x)


def _step(fixed):
    torch.manual_seed(0)
    net = GramAttention()
    x = torch.randn(6, 6)  # as many tokens as channels: the transpose has the same shape
    offload = OffloadHandler(view_aware=fixed)
    with saved_tensors_hooks(offload.tensor_push, offload.tensor_pop):
        loss = net(x).square().mean()
    loss.backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return _step(False)


def reference():
    return _step(True)
