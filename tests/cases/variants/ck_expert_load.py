"""A router counts the tokens of each expert; the recomputation counts them again."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Router(nn.Module):
    def __init__(self, dim, experts):
        super().__init__()
        self.gate = nn.Linear(dim, experts, bias=False)
        self.register_buffer("load", torch.zeros(experts))

    def forward(self, x, count):
        scores = self.gate(x).softmax(-1)  # VICTIM
        top, index = scores.max(-1)
        if self.training and count:
            with torch.no_grad():
                self.load += torch.bincount(index.flatten(), minlength=self.load.numel())  # CULPRIT
        return top, index


class MoE(nn.Module):
    def __init__(self, dim=6, experts=3):
        super().__init__()
        self.router = Router(dim, experts)
        self.experts = nn.ModuleList(nn.Linear(dim, dim) for _ in range(experts))

    def forward(self, x, count):
        weight, index = self.router(x, count)  # ALSO
        out = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            out = out + expert(x) * (weight * (index == i))[:, None]  # VICTIM
        return out


def go(inside):
    torch.manual_seed(0)
    moe = MoE()
    x = torch.randn(7, 6, requires_grad=True)
    y = checkpoint(moe, x, inside, use_reentrant=False)
    y.square().mean().backward()
    return {n: p.grad for n, p in moe.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
