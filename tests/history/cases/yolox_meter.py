"""Meters add up losses with their graphs."""

import torch
from torch import nn

from tests.history.case import Case, count_nodes
from tests.history.excerpt import definitions

FILE = "yolox/utils/metric.py"
CASE = Case(
    repository="Megvii-BaseDetection/YOLOX",
    fix="dc360b485c",
    license="Apache-2.0",
    kind="memory",
    what="the total of a meter keeps the graph of each loss",
    paths=(FILE,),
    also={FILE: (62, 64)},
    steps=4,
    options={"keep_steps": 3},
)


def build():
    meter = definitions(FILE, ["AverageMeter", "MeterBuffer"], {})["MeterBuffer"]()
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = torch.randn(16, 4), torch.randn(16, 2)

    def step(number):
        optimizer.zero_grad()
        box, label = (model(x) - y).square().mean(0)
        outputs = {"total_loss": box + label, "iou_loss": box, "cls_loss": label}
        outputs["total_loss"].backward()
        optimizer.step()
        meter.update(iter_time=0.1, **outputs)
        return {
            "loss": outputs["total_loss"].detach(),
            "nodes": count_nodes(meter["iou_loss"].total),
        }

    return model, step


def symptom(bug, fix):
    return bug.values[-1]["nodes"] > bug.values[0]["nodes"] > fix.values[-1]["nodes"]
