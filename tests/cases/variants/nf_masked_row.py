"""All scores of a padded row are masked: softmax gives NaN."""

import torch
from torch import nn


def go(c):
    torch.manual_seed(0)
    net, x = nn.Linear(4, 4), torch.rand(3, 4)
    mask = torch.tensor([[0, 0, 1, 1], [0, 0, 0, 1], [1, 1, 1, 1 if c else 0]], dtype=torch.bool)
    scores = net(x).masked_fill(mask, float("-inf"))
    attention = scores.softmax(-1)  # CULPRIT
    (attention @ x.T).square().mean().backward()  # VICTIM
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
