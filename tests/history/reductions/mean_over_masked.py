"""A mean over all tokens stands where a mean over the masked ones is meant."""

import torch
from torch import nn

FOUND = False


def reduce_wrong(losses, mask):
    return (losses * mask).mean()  # CULPRIT


def reduce_right(losses, mask):
    return (losses * mask).sum() / mask.sum()


def train(reduce):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(9, 6), nn.Linear(6, 9))
    tokens = torch.randint(9, (4, 12))
    mask = (torch.rand(4, 12) < 0.2).float()
    losses = nn.functional.cross_entropy(model(tokens).transpose(1, 2), tokens, reduction="none")
    reduce(losses, mask).backward()
    return [p.grad.clone() for p in model.parameters()]


def run():
    return train(reduce_wrong)


def reference():
    return train(reduce_right)
