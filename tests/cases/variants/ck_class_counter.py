"""Layers count their calls in a class attribute, to keep every n-th layer dense."""
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class SparseMlp(nn.Module):
    steps_taken = 0

    def __init__(self, dim, every):
        super().__init__()
        self.a, self.b, self.every = nn.Linear(dim, 2 * dim), nn.Linear(2 * dim, dim), every

    @classmethod
    def tick(cls):
        cls.steps_taken += 1  # CULPRIT
        return cls.steps_taken

    def dense(self):
        if self.every == 0:
            return True
        return self.tick() % self.every == 1  # ALSO

    def forward(self, x):
        h = torch.tanh(self.a(x))
        if not self.dense():
            h = h * (h.abs() > 0.5)  # VICTIM
        return self.b(h)


class Stack(nn.Module):
    def __init__(self, every, dim=6, depth=2):
        super().__init__()
        self.layers = nn.ModuleList(SparseMlp(dim, every) for _ in range(depth))

    def forward(self, x):
        for layer in self.layers:
            x = x + checkpoint(layer, x, use_reentrant=False)
        return x


def go(every):
    torch.manual_seed(0)
    SparseMlp.steps_taken = 0
    net = Stack(every)
    net(torch.randn(3, 6)).sum().backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(2)


def reference():
    return go(0)
