"""A cross entropy multiplies the output of a log softmax in place."""

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "holocron/nn/functional.py"
CASE = Case(
    repository="frgfm/Holocron",
    fix="15fda228",
    license="MIT",
    kind="in-place",
    what="`*=` by weights of classes overwrites the logarithms that their backward needs",
    paths=(FILE,),
    within={FILE: ((192, 202),)},
)


def build():
    names = definitions(FILE, ["multilabel_cross_entropy"], {})
    model = nn.Conv2d(3, 4, 3)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    x, target = torch.randn(4, 3, 6, 6), (torch.rand(4, 4, 4, 4) > 0.5).float()
    weight = torch.tensor([0.5, 1.0, 2.0, 4.0])

    def step(number):
        optimizer.zero_grad()
        loss = names["multilabel_cross_entropy"](model(x), target, weight)
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return "inplace operation" in bug.error
