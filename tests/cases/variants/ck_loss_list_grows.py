"""Auxiliary losses are collected in a list during forward; recomputation adds them again."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Gate(nn.Module):
    def __init__(self, dim, log):
        super().__init__()
        self.fc, self.log = nn.Linear(dim, 3), log

    def forward(self, x):
        p = self.fc(x).softmax(-1)
        if self.log is not None:
            self.log.append(float(p.detach().mean(0).square().sum()))  # CULPRIT
        return (p.unsqueeze(-1) * x.unsqueeze(-2)).sum(-2)  # VICTIM


def go(collect):
    torch.manual_seed(0)
    log = [] if collect else None
    gates = nn.ModuleList(Gate(4, log) for _ in range(2))
    x = torch.randn(3, 4, requires_grad=True)
    h = x
    for gate in gates:
        h = checkpoint(gate, h, use_reentrant=False)
    h.square().mean().backward()
    out = {n: p.grad for n, p in gates.named_parameters()}
    out["balance"] = torch.tensor(sum(log or [0.0]))
    return out


def run():
    return go(True)


def reference():
    return go(False)
