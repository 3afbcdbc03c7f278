"""A ring buffer of activations returns views; a write overwrites the oldest one still in use."""
import torch
from torch import nn


class Ring:
    def __init__(self, size, shape):
        self.store, self.at, self.size = torch.zeros(size, *shape), 0, size

    def push(self, value):
        self.store[self.at % self.size].copy_(value)  # CULPRIT
        self.at += 1

    def last(self, back):
        return self.store[(self.at - back) % self.size]


class Fresh(Ring):
    def __init__(self, size, shape):
        self.items = [torch.zeros(shape) for _ in range(size)]

    def push(self, value):
        self.items.append(value)

    def last(self, back):
        return self.items[-back]


class Delay(nn.Module):
    def __init__(self, ring, dim=3):
        super().__init__()
        self.a, self.b, self.ring = nn.Linear(dim, dim), nn.Parameter(torch.ones(dim)), ring

    def forward(self, x):
        out = torch.tanh(self.a(x)) + self.b * self.ring.last(2)  # VICTIM
        self.ring.push(out.detach())  # ALSO
        return out


def go(kind):
    torch.manual_seed(0)
    net = Delay(kind(2, (4, 3)))
    sum(net(x).sum() for x in torch.randn(4, 4, 3)).backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(Ring)


def reference():
    return go(Fresh)
