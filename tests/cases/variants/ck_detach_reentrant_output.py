"""A reentrant region hands a second tensor out through an attribute: it has no history."""

import warnings

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Encoder(nn.Module):
    def __init__(self, side, dim=4):
        super().__init__()
        self.fc, self.aux = nn.Linear(dim, dim), nn.Linear(dim, 2)
        self.side, self.aux_out = side, None

    def forward(self, x):
        h = torch.tanh(self.fc(x))
        aux = self.aux(h)  # VICTIM
        if self.side:
            self.aux_out = aux  # CULPRIT
            return h
        return h, aux


def go(side):
    torch.manual_seed(0)
    net, head = Encoder(side), nn.Linear(4, 1)
    x = torch.randn(3, 4, requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        out = checkpoint(net, x, use_reentrant=True)
    h, aux = (out, net.aux_out) if side else out
    (head(h).sum() + aux.square().sum()).backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
