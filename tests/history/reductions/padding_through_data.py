"""A helper pads the data of a tensor, so that layers before it are not trained."""

import torch
from torch import nn

FOUND = True


def pad_wrong(x, width):
    return nn.functional.pad(x.data, (0, width - x.shape[1]))  # CULPRIT


def pad_right(x, width):
    return nn.functional.pad(x, (0, width - x.shape[1]))


def train(pad):
    torch.manual_seed(0)
    first, last = nn.Linear(3, 5), nn.Linear(8, 1)
    out = last(pad(first(torch.randn(7, 3)).relu(), 8))
    out.square().mean().backward()
    parameters = [*first.parameters(), *last.parameters()]
    return [torch.zeros(1) if p.grad is None else p.grad.clone() for p in parameters]


def run():
    return train(pad_wrong)


def reference():
    return train(pad_right)
