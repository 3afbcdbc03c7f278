"""Two losses share an encoder, and the first backward frees it."""

import torch
from torch import nn


def go(c):
    torch.manual_seed(0)
    encoder, a, b = nn.Linear(4, 4), nn.Linear(4, 1), nn.Linear(4, 1)
    h = encoder(torch.rand(3, 4)).tanh()  # VICTIM
    first, second = a(h).mean(), b(h).mean()
    first.backward(retain_graph=not c)  # CULPRIT
    second.backward()
    return {n: p.grad for n, p in encoder.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
