"""Sharpness-aware minimization: the weights are changed and restored before the first backward."""
import torch
from torch import nn


class Sam:
    def __init__(self, params, rho=0.05):
        self.params, self.rho = list(params), rho

    @torch.no_grad()
    def up(self):
        for p in self.params:
            p.add_(self.rho * p.sign())  # CULPRIT

    @torch.no_grad()
    def down(self):
        for p in self.params:
            p.sub_(self.rho * p.sign())


def go(early):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 8), nn.SiLU(), nn.Linear(8, 1))
    sam, x = Sam(net.parameters()), torch.randn(6, 3)
    clean = net(x).pow(2).mean()  # VICTIM
    if not early:
        clean.backward()
    sam.up()  # ALSO
    with torch.no_grad():
        sharp = float(net(x).pow(2).mean())
    sam.down()
    if early:
        clean.backward()
    assert sharp >= 0
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
