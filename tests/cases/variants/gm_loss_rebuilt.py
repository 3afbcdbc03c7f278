"""The losses of the tasks are summed as numbers, and converted to a tensor."""
import torch
from torch import nn


class Meter:
    def __init__(self):
        self.seen = {}

    def add(self, name, loss):
        self.seen[name] = loss.item()  # CULPRIT

    def mean(self):
        return torch.tensor(list(self.seen.values()), requires_grad=True).mean()


class GraphMeter(Meter):
    def add(self, name, loss):
        self.seen[name] = loss

    def mean(self):
        return torch.stack(list(self.seen.values())).mean()


def go(meter):
    torch.manual_seed(0)
    net = nn.Linear(3, 2)
    for name in ("near", "far"):
        meter.add(name, net(torch.randn(4, 3)).pow(2).mean())  # VICTIM
    meter.mean().backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(Meter())


def reference():
    return go(GraphMeter())
