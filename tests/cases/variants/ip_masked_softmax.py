"""Attention weights are masked in place after softmax saved them."""

import torch
from torch import nn


def mask_weights(weights, keep):
    weights.masked_fill_(~keep, 0.0)  # CULPRIT
    return weights / weights.sum(-1, keepdim=True)


class Attention(nn.Module):
    def __init__(self, dim=4):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(dim, dim) for _ in range(3))

    def forward(self, x, keep, clone):
        w = (self.q(x) @ self.k(x).t()).softmax(-1)  # VICTIM
        return mask_weights(w.clone() if clone else w, keep) @ self.v(x)  # ALSO


def go(clone):
    torch.manual_seed(0)
    net = Attention()
    keep = torch.ones(5, 5, dtype=torch.bool).tril()
    net(torch.randn(5, 4), keep, clone).square().sum().backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(False)


def reference():
    return go(True)
