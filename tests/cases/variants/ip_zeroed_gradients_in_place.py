"""zero_grad sets gradients to zero in place before the backward of a penalty on them."""
import torch
from torch import nn


class Sharpness:
    def __init__(self, net):
        self.net = net
        self.opt = torch.optim.SGD(net.parameters(), 0.1)

    def penalty(self):
        return sum(p.grad.square().sum() for p in self.net.parameters())  # VICTIM

    def step(self, x, keeps):
        self.opt.zero_grad()
        self.net(x).exp().sum().backward(create_graph=True)
        penalty = self.penalty()
        self.opt.zero_grad(set_to_none=keeps)  # CULPRIT
        penalty.backward()


def go(keeps):
    torch.manual_seed(0)
    net = nn.Linear(4, 3)
    Sharpness(net).step(torch.randn(2, 4), keeps)
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(False)


def reference():
    return go(True)
