"""A hook that logs the norm of a gradient returns the norm, which replaces the gradient."""
import torch
from torch import nn


class Norms:
    def __init__(self, returns):
        self.seen, self.returns = [], returns

    def watch(self, tensor):
        tensor.register_hook(self.measure)
        return tensor

    def measure(self, grad):
        self.seen.append(float(grad.norm()))
        if self.returns:
            return grad.norm(dim=-1)  # CULPRIT


def go(returns):
    torch.manual_seed(0)
    net, norms = nn.Linear(4, 3), Norms(returns)
    loss = norms.watch(net(torch.randn(2, 4))).square().sum()
    loss.backward()  # VICTIM
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
