"""A mutable default argument keeps values of previous calls."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


def route(x, history=[]):  # ALSO
    history.append(x.shape[0])  # CULPRIT
    return len(history)


class Layer(nn.Module):
    def __init__(self, remember, dim=4):
        super().__init__()
        self.fc, self.remember = nn.Linear(dim, dim), remember

    def forward(self, x):
        depth = route(x) if self.remember else 1
        return torch.tanh(self.fc(x) / depth)  # VICTIM


def go(remember):
    route.__defaults__[0].clear()
    torch.manual_seed(0)
    net = Layer(remember)
    checkpoint(net, torch.randn(3, 4), use_reentrant=False).sum().backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
