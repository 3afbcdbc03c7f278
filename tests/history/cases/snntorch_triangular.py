"""The backward of a surrogate gradient asks whether a whole tensor is negative."""

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "snntorch/surrogate.py"
CASE = Case(
    repository="jeshraghian/snntorch",
    fix="01d1cbf",
    license="MIT",
    kind="backward",
    what="`if input_ < 0` raises for more than one neuron",
    paths=(FILE,),
)


def build():
    spike = definitions(FILE, ["Triangular", "triangular"], {})["triangular"]()
    model = nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = torch.randn(8, 4), torch.randn(8, 2)

    def step(number):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model[1](spike(model[0](x) - 0.1)), y)
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return "ambiguous" in bug.error
