"""Identity saved-tensor hooks disable the version check: an in-place write is not detected."""

import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks


class Profiled(nn.Module):
    def __init__(self, dim=4):
        super().__init__()
        self.fc, self.bytes = nn.Linear(dim, dim), 0

    def pack(self, t):
        self.bytes += t.nbytes
        return t

    def forward(self, x, inplace):
        with saved_tensors_hooks(self.pack, lambda t: t):
            h = torch.exp(self.fc(x))  # VICTIM
            if inplace:
                h.mul_(2.0)  # CULPRIT
            else:
                h = h * 2.0
            return h.sum()


def go(inplace):
    torch.manual_seed(0)
    net = Profiled()
    net(torch.randn(3, 4), inplace).backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
