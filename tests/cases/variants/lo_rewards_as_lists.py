"""Losses are collected as lists of numbers and converted to a tensor at the end of the epoch."""
import torch
from torch import nn


class Epoch:
    def __init__(self, keeps):
        self.keeps, self.net = keeps, nn.Linear(4, 3)

    def loss(self, batches):
        found = []
        for batch in batches:
            each = self.net(batch).square().mean(0)
            found.append(each)
        if self.keeps:
            return torch.stack(found).mean()
        rows = [each.tolist() for each in found]  # CULPRIT
        return torch.tensor(rows).mean()


def go(keeps):
    torch.manual_seed(0)
    epoch = Epoch(keeps)
    epoch.loss(torch.randn(6, 4).split(2)).backward()  # VICTIM
    return {n: p.grad for n, p in epoch.net.named_parameters()}


def run():
    return go(False)


def reference():
    return go(True)
