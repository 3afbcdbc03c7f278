"""Biases of a detector are initialized through a view of a leaf."""

import math
from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import statement

FILE = "models/yolo.py"
CASE = Case(
    repository="ultralytics/yolov5",
    fix="9922c1183f",
    license="AGPL-3.0",
    kind="in-place",
    what="`b[:, 4] += ...` writes a view of a parameter with gradients enabled",
    paths=(FILE,),
    also={FILE: (151,)},
)


def build():
    names = {"math": math, "torch": torch}
    statement(FILE, "def _initialize_biases(", names)
    model = nn.Conv2d(3, 3 * 8, 1)
    head = SimpleNamespace(m=[model], stride=torch.tensor([8.0]), na=3, nc=3)
    x, y = torch.randn(2, 3, 4, 4), torch.rand(2, 24, 4, 4)

    def step(number):
        names["_initialize_biases"](SimpleNamespace(model=[head]))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loss = nn.functional.binary_cross_entropy_with_logits(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return "leaf" in bug.error and "in-place" in bug.error
