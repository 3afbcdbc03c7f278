"""A shortcut is added in place to the output of an activation."""

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "models.py"
CASE = Case(
    repository="ultralytics/yolov3",
    fix="daaa8194",
    license="GPL-3.0",
    kind="in-place",
    what="`x += layer_outputs[...]` writes to a result that the activation saved",
    paths=(FILE,),
)


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Conv2d(8, 5, 1)

    def forward(self, x, size):
        return self.out(x)


def block(channels):
    return nn.Sequential(
        nn.Conv2d(channels, 8, 3, padding=1), nn.BatchNorm2d(8), nn.LeakyReLU(0.1, inplace=True)
    )


def build():
    darknet = definitions(FILE, ["Darknet"], {"torch": torch, "nn": nn, "ONNX_EXPORT": False})
    model = darknet["Darknet"].__new__(darknet["Darknet"])
    nn.Module.__init__(model)
    kinds = ["convolutional", "convolutional", "shortcut", "convolutional", "yolo"]
    model.module_defs = [{"type": kind, "from": "-2"} for kind in kinds]
    model.module_list = nn.ModuleList([block(3), block(8), nn.Sequential(), block(8), Head()])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x, y = torch.randn(2, 3, 8, 8), torch.randn(2, 5, 8, 8)

    def step(number):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x)[0], y)
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return "inplace" in bug.error
