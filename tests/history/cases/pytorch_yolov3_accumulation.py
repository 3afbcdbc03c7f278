"""Gradients are accumulated over the wrong batches."""

import datetime as dt
import time
from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import statement

FILE = "train.py"
CASE = Case(
    repository="eriklindernoren/PyTorch-YOLOv3",
    fix="65486c48b3",
    license="GPL-3.0",
    kind="accumulation",
    what="the remainder is not compared to 0, so three of four batches update the weights",
    paths=(FILE,),
)


class Model(nn.Module):
    yolo_layers, seen = (), 0

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2))

    def forward(self, images, targets):
        outputs = self.body(images)
        return (outputs - targets).square().mean(), outputs


def build():
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    updates = []
    optimizer.register_step_post_hook(lambda *a: updates.append(1))
    names = {
        "dataloader": [(None, torch.randn(4, 6), torch.randn(4, 2)) for _ in range(8)],
        "epoch": 0, "opt": SimpleNamespace(gradient_accumulations=4, epochs=1), "model": model,
        "Variable": lambda x, requires_grad=False: x, "device": "cpu", "optimizer": optimizer,
        "metrics": [], "AsciiTable": lambda rows: SimpleNamespace(table=""), "time": time,
        "datetime": dt, "start_time": 0.0, "print": lambda *a: None,
    }  # fmt: skip

    def step(number):
        statement(FILE, "for batch_i, (_, imgs, targets) in enumerate(dataloader)", names)
        return {"loss": names["loss"].detach(), "updates": len(updates)}

    return model, step


def symptom(bug, fix):
    return bug.values[-1]["updates"] > 2 * fix.values[-1]["updates"]
