"""A frozen embedding feeds a reentrant checkpoint: no input requires grad."""

import warnings

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Lora(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.base = nn.Linear(dim, dim).requires_grad_(False)
        self.down, self.up = nn.Linear(dim, 2, bias=False), nn.Linear(2, dim, bias=False)

    def forward(self, x):
        return torch.relu(self.base(x) + self.up(self.down(x)))  # VICTIM


class Model(nn.Module):
    def __init__(self, enable_inputs, dim=6):
        super().__init__()
        self.emb = nn.Embedding(10, dim).requires_grad_(False)
        self.block = Lora(dim)
        self.head = nn.Linear(dim, 10)
        self.enable_inputs = enable_inputs

    def forward(self, ids):
        h = self.emb(ids)
        if self.enable_inputs:
            h.requires_grad_(True)
        h = checkpoint(self.block, h, use_reentrant=True)  # CULPRIT
        return self.head(h)  # VICTIM


def go(enable):
    torch.manual_seed(0)
    model = Model(enable)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model(torch.tensor([1, 2, 3])).logsumexp(-1).sum().backward()
    return {n: p.grad for n, p in model.named_parameters()}


def run():
    return go(False)


def reference():
    return go(True)
