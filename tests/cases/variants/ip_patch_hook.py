"""Activation patching by a forward hook that writes to the output of the module."""
import torch
from torch import nn


class Patcher:
    def __init__(self, net, unit, inplace):
        self.unit, self.inplace = unit, inplace
        self.handles = [
            m.register_forward_hook(self.patch) for m in net.modules() if isinstance(m, nn.Sigmoid)
        ]

    def patch(self, module, inputs, output):
        if self.inplace:
            output[:, self.unit] = 0.0  # CULPRIT
            return None
        keep = torch.ones(output.shape[1])
        keep[self.unit] = 0.0
        return output * keep

    def __enter__(self):
        return self

    def __exit__(self, *error):
        for handle in self.handles:
            handle.remove()


class Probe(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.act, self.b = nn.Linear(4, 8), nn.Sigmoid(), nn.Linear(8, 2)

    def forward(self, x):
        return self.b(self.act(self.a(x)))  # VICTIM


def go(inplace):
    torch.manual_seed(0)
    net = Probe()
    with Patcher(net, 3, inplace):
        net(torch.randn(5, 4)).sum().backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
