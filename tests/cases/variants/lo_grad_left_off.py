"""An evaluation helper disables gradients and does not enable them again."""
import torch
from torch import nn


class Metric:
    def __init__(self, restore):
        self.restore = restore

    def __call__(self, net, x):
        before = torch.is_grad_enabled()
        torch.set_grad_enabled(False)  # CULPRIT
        value = float(net(x).mean())
        if self.restore:
            torch.set_grad_enabled(before)
        return value


def go(restore):
    torch.manual_seed(0)
    net, x, metric = nn.Linear(3, 1), torch.randn(4, 3), Metric(restore)
    try:
        metric(net, x)  # ALSO
        loss = net(x).pow(2).mean()
        loss.backward()  # VICTIM
        return {n: p.grad for n, p in net.named_parameters()}
    finally:
        torch.set_grad_enabled(True)


def run():
    return go(False)


def reference():
    return go(True)
