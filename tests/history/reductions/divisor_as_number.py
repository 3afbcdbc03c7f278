"""Weights that depend on the model are normalized by a sum that was turned into a number."""

import torch
from torch import nn

FOUND = True


def mean_wrong(losses, weights):
    total = weights.sum().item()  # CULPRIT
    return (weights * losses).sum() / total


def mean_right(losses, weights):
    return (weights * losses).sum() / weights.sum()


def train(mean):
    torch.manual_seed(0)
    model = nn.Linear(4, 2)
    x, y = torch.randn(10, 4), torch.randn(10)
    value, confidence = model(x).unbind(-1)
    mean((value - y).square(), confidence.sigmoid()).backward()
    return [p.grad.clone() for p in model.parameters()]


def run():
    return train(mean_wrong)


def reference():
    return train(mean_right)
