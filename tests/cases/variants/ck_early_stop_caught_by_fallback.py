"""A broad except around a kernel catches the exception that stops the recomputation."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Gate(nn.Module):
    def __init__(self, kinds):
        super().__init__()
        self.proj = nn.Linear(4, 4)
        self.kinds = kinds

    def fast(self, x):
        if x.shape[-1] > 64:
            raise NotImplementedError
        return torch.sigmoid(self.proj(x))  # VICTIM

    def strict(self, x):
        try:
            return self.fast(x)
        except NotImplementedError:
            return self.slow(x)

    def slow(self, x):
        return 1 / (1 + torch.exp(-self.proj(x)))

    def forward(self, x):
        if self.kinds == "some":
            return self.strict(x)
        try:
            return self.fast(x)
        except (KeyError, Exception):  # CULPRIT
            return self.slow(x)


def go(kinds):
    torch.manual_seed(0)
    gate = Gate(kinds)
    x = torch.rand(3, 4, requires_grad=True)
    checkpoint(gate, x, use_reentrant=False).sum().backward()
    return {n: p.grad for n, p in gate.named_parameters()}


def run():
    return go("all")


def reference():
    return go("some")
