"""An estimator of the gradient of a divergence has wrong signs and misses terms."""

from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import statement

FILE = "normflow/core.py"
CASE = Case(
    repository="VincentStimper/normalizing-flows",
    fix="982f3d5ce9",
    license="MIT",
    kind="loss",
    what="the determinants of the flows get no gradient of their own",
    paths=(FILE,),
)


class Scale(nn.Module):
    def __init__(self):
        super().__init__()
        self.log_scale = nn.Parameter(torch.full((2,), 0.3))
        self.shift = nn.Parameter(torch.zeros(2))

    def forward(self, z):
        return z * self.log_scale.exp() + self.shift, self.log_scale.sum().expand(len(z))


class Gaussian(nn.Module):
    def __init__(self):
        super().__init__()
        self.loc = nn.Parameter(torch.randn(2))

    def forward(self, number):
        z = self.loc + torch.randn(number, 2)
        return z, -0.5 * (z - self.loc).square().sum(1)


def build():
    names = {"torch": torch}
    statement(FILE, "def reverse_kld_cov(", names)
    model = nn.ModuleDict({"q0": Gaussian(), "flows": nn.ModuleList([Scale(), Scale()])})
    target = SimpleNamespace(log_prob=lambda z: -0.5 * (z - 1).square().sum(1))
    flow = SimpleNamespace(q0=model["q0"], flows=model["flows"], p=target)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

    def step(number):
        optimizer.zero_grad()
        loss = names["reverse_kld_cov"](flow, 64)
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return abs(bug.norm("flows") - fix.norm("flows")) > 0.1 * fix.norm("flows")
