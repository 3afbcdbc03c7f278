"""Sub-sampled attention: the region reads the next item of a sampler object."""
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Sampler:
    def __init__(self, sizes):
        self.sizes, self.position = sizes, 0

    def __iter__(self):
        return self

    def __next__(self):
        size = self.sizes[self.position % len(self.sizes)]
        self.position += 1  # CULPRIT
        return size


class Constant(Sampler):
    def __next__(self):
        return self.sizes[0]


class Sparse(nn.Module):
    def __init__(self, sampler, dim=4):
        super().__init__()
        self.q, self.sampler = nn.Linear(dim, dim), sampler

    def forward(self, x):
        keep = next(self.sampler)  # ALSO
        k = self.q(x[:, :keep])  # VICTIM
        return ((x @ k.mT).softmax(-1) @ k).sum(1)


def go(kind):
    torch.manual_seed(0)
    net = Sparse(kind([3, 5, 2]))
    checkpoint(net, torch.randn(2, 6, 4), use_reentrant=False).pow(2).sum().backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(Sampler)


def reference():
    return go(Constant)
