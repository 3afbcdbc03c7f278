"""Beam scores are written by index while the graph needs their old values."""

import torch
from torch import nn


class Beams:
    def __init__(self, n):
        self.scores = torch.zeros(n)

    def advance(self, index, gain, fresh):
        if fresh:
            self.scores = self.scores.index_add(0, index, gain)
        else:
            self.scores.index_add_(0, index, gain)  # CULPRIT
        return self.scores


def go(fresh):
    torch.manual_seed(0)
    net, beams = nn.Linear(3, 2), Beams(4)
    loss = 0.0
    for step in torch.randn(3, 3):
        gain = net(step)
        scores = beams.advance(torch.tensor([0, 2]), gain, fresh)  # ALSO
        loss = loss + scores.square().sum()  # VICTIM
    loss.backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(False)


def reference():
    return go(True)
