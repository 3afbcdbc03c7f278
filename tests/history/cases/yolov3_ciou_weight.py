"""The weight of a term of a box loss has a gradient of its own."""

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "utils/utils.py"
CASE = Case(
    repository="ultralytics/yolov3",
    fix="77012f8f",
    license="GPL-3.0",
    kind="no_grad",
    what="the weight of the aspect ratio is part of the formula, and not a constant",
    paths=(FILE,),
)


def build():
    import math

    bbox_iou = definitions(FILE, ["bbox_iou"], {"torch": torch, "math": math})["bbox_iou"]
    model = nn.Linear(6, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x, boxes = torch.randn(8, 6), torch.rand(8, 4) + torch.tensor([0.0, 0.0, 1.0, 0.2])

    def step(number):
        optimizer.zero_grad()
        prediction = model(x)
        predicted = torch.cat([prediction[:, :2].sigmoid(), prediction[:, 2:].exp()], 1)
        overlap = bbox_iou(predicted.t(), boxes, x1y1x2y2=False, CIoU=True)
        loss = (1.0 - overlap).mean()
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    mine, right = (run.grads[0]["weight"] for run in (bug, fix))
    return bool((mine - right).norm() > 0.01 * right.norm()) and torch.isclose(
        bug.values[0]["loss"], fix.values[0]["loss"]
    )
