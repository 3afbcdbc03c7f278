"""A view gives scores the shape that the loss takes, and mixes classes with positions."""

import torch
from torch import nn

FOUND = True


def train(view):
    torch.manual_seed(0)
    model = nn.Linear(6, 5)
    scores = model(torch.randn(4, 7, 6))
    if not view:
        scores = scores.transpose(1, 2).contiguous()
    scores = scores.view(4, 5, 7)  # CULPRIT
    nn.functional.cross_entropy(scores, torch.randint(5, (4, 7))).backward()
    return [p.grad.clone() for p in model.parameters()]


def run():
    return train(view=True)


def reference():
    return train(view=False)
