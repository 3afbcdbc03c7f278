"""A flow subtracts in place from a log-probability that its base distribution has saved."""

from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import statement

FILE = "normflow/core.py"
CASE = Case(
    repository="VincentStimper/normalizing-flows",
    fix="45e0d38b45",
    license="MIT",
    kind="in-place",
    what="the log-probability of a mixture is the result of `logsumexp`, and is changed in place",
    paths=(FILE,),
    also={FILE: (49,)},
)


class Mixture(nn.Module):
    def __init__(self):
        super().__init__()
        self.loc = nn.Parameter(torch.randn(1, 3, 2))
        self.scores = nn.Parameter(torch.zeros(1, 3))

    def forward(self, number):
        modes = torch.multinomial(self.scores[0].softmax(0), number, replacement=True)
        z = self.loc[0, modes] + torch.randn(number, 2)
        log_p = self.scores.log_softmax(1) - 0.5 * (z[:, None] - self.loc).square().sum(2)
        return z, torch.logsumexp(log_p, 1)


class Scale(nn.Module):
    def __init__(self):
        super().__init__()
        self.log_scale = nn.Parameter(torch.zeros(2))
        self.shift = nn.Parameter(torch.zeros(2))

    def forward(self, z):
        return z * self.log_scale.exp() + self.shift, self.log_scale.sum().expand(len(z))


def build():
    names = {"torch": torch}
    statement(FILE, "def reverse_kld(", names)
    model = nn.ModuleDict({"q0": Mixture(), "flows": nn.ModuleList([Scale(), Scale()])})
    target = SimpleNamespace(log_prob=lambda z: -0.5 * (z - 1).square().sum(1))
    flow = SimpleNamespace(q0=model["q0"], flows=model["flows"], p=target)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

    def step(number):
        optimizer.zero_grad()
        loss = names["reverse_kld"](flow, 16)
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return "inplace" in bug.error
