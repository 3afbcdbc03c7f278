"""Prototypes are normalized in place at every forward; two crops run two forwards."""

import torch
import torch.nn.functional as F
from torch import nn


class Prototypes(nn.Module):
    def __init__(self, fixed, dim=4, n=3):
        super().__init__()
        self.weight, self.fixed = nn.Parameter(torch.randn(n, dim)), fixed

    def forward(self, z):
        if self.fixed:
            return z @ F.normalize(self.weight, dim=1).t()
        with torch.no_grad():
            self.weight.div_(self.weight.norm(dim=1, keepdim=True))  # CULPRIT
        return z @ self.weight.t()  # VICTIM


def go(fixed):
    torch.manual_seed(0)
    enc, proto = nn.Linear(5, 4), Prototypes(fixed)
    a, b = torch.randn(4, 5), torch.randn(4, 5)
    loss = -(proto(enc(a)).softmax(-1) * proto(enc(b)).log_softmax(-1)).sum()
    loss.backward()
    return {n: p.grad for n, p in enc.named_parameters()}


def run():
    return go(False)


def reference():
    return go(True)
