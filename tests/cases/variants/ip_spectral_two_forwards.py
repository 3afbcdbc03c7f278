"""A custom spectral norm updates its vector in place at each of two critic forwards."""

import torch
import torch.nn.functional as F
from torch import nn


class SNLinear(nn.Module):
    def __init__(self, dim, clone):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(dim, dim))
        self.register_buffer("u", F.normalize(torch.randn(dim), dim=0))
        self.clone = clone

    def forward(self, x):
        with torch.no_grad():
            v = F.normalize(self.weight.t() @ self.u, dim=0)
            self.u.copy_(F.normalize(self.weight @ v, dim=0))  # CULPRIT
        u = self.u.clone() if self.clone else self.u
        sigma = torch.dot(u, self.weight @ v)  # VICTIM
        return x @ (self.weight / sigma).t()


def go(clone):
    torch.manual_seed(0)
    critic = SNLinear(4, clone)
    real, fake = torch.randn(3, 4), torch.randn(3, 4)
    (critic(real).mean() - critic(fake).mean()).backward()
    return {n: p.grad for n, p in critic.named_parameters()}


def run():
    return go(False)


def reference():
    return go(True)
