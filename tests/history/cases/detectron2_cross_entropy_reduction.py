"""A wrapper of cross entropy takes a reduction and does not pass it on."""

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "detectron2/layers/wrappers.py"
CASE = Case(
    repository="facebookresearch/detectron2",
    fix="8b380971a3",
    license="Apache-2.0",
    kind="scale",
    what="a sum that is divided by the number of boxes is already a mean",
    paths=(FILE,),
)


def build():
    cross_entropy = definitions(FILE, ["cross_entropy"], {})["cross_entropy"]
    model = nn.Linear(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    features, classes = torch.randn(32, 8), torch.randint(4, (32,))

    def step(number):
        optimizer.zero_grad()
        loss = cross_entropy(model(features), classes, reduction="sum") / len(classes)
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return bug.norm() < 0.1 * fix.norm()
