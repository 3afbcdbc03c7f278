"""A forward pre-hook scales the inputs inside a with block; the recomputation runs after it."""
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Scaled:
    def __init__(self, module, factor):
        self.module, self.factor = module, factor

    def __enter__(self):
        self.handle = self.module.register_forward_pre_hook(lambda m, args: (torch.tanh(args[0] * self.factor),))  # VICTIM
        return self

    def __exit__(self, *error):
        self.handle.remove()


class Net(nn.Module):
    def __init__(self, dim=4):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(dim, dim), nn.Tanh())

    def forward(self, x):
        return checkpoint(self.inner, x, use_reentrant=False)


def go(inside):
    torch.manual_seed(0)
    net, x = Net(), torch.randn(3, 4, requires_grad=True)
    with Scaled(net.inner[0], 2.0):  # CULPRIT
        loss = net(x).sum()
        if inside:
            loss.backward()
    if not inside:
        loss.backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(False)


def reference():
    return go(True)
