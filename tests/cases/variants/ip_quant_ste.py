"""Quantization-aware training: the weight is rounded in place for the forward and not restored."""
import torch
from torch import nn
from torch.nn import functional as F


class FakeQuant:
    def __init__(self, bits, restore):
        self.levels, self.restore = 2**bits - 1, restore

    @torch.no_grad()
    def squeeze(self, w):
        scale = w.abs().max() / self.levels
        return w.div_(scale).round_().mul_(scale)  # CULPRIT


class QLinear(nn.Linear):
    quant = None

    def forward(self, x):
        regular = self.weight.pow(2).sum()  # VICTIM
        self.weight_decay = regular
        if self.quant.restore:
            w = self.weight + (self.quant.squeeze(self.weight.detach().clone()) - self.weight).detach()
        else:
            self.quant.squeeze(self.weight)  # ALSO
            w = self.weight
        return F.linear(x, w, self.bias)


def go(restore):
    torch.manual_seed(0)
    QLinear.quant = FakeQuant(3, restore)
    net = QLinear(4, 3)
    (net(torch.randn(5, 4)).pow(2).mean() + 0.01 * net.weight_decay).backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(False)


def reference():
    return go(True)
