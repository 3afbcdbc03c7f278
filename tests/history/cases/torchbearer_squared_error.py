"""A metric returns errors with their graph, and a running mean keeps them."""

from collections import deque
from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case, count_nodes
from tests.history.excerpt import definitions

FILE = "torchbearer/metrics/primitives.py"
CASE = Case(
    repository="pytorchbearer/torchbearer",
    fix="bd39387",
    license="MIT",
    kind="memory",
    what="squared errors are not detached, so the window of a running mean keeps their graphs",
    paths=(FILE,),
    steps=5,
    options={"keep_steps": 3},
)


class Metric:
    def __init__(self, name):
        self.name = name


def build():
    names = definitions(FILE, ["MeanSquaredError"], {
        "torchbearer": SimpleNamespace(Y_PRED="y_pred", Y_TRUE="y_true"), "Metric": Metric,
        "default_for_key": lambda key: lambda cls: cls, "running_mean": lambda cls: cls,
        "mean": lambda cls: cls,
    })  # fmt: skip
    metric, window = names["MeanSquaredError"](), deque(maxlen=50)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    x, y = torch.randn(16, 6), torch.randn(16, 1)

    def step(number):
        optimizer.zero_grad()
        prediction = model(x)
        loss = nn.functional.mse_loss(prediction, y)
        loss.backward()
        optimizer.step()
        window.append(metric.process({"y_pred": prediction, "y_true": y}).mean())
        average = sum(window) / len(window)
        return {"loss": loss.detach(), "nodes": count_nodes(average)}

    return model, step


def symptom(bug, fix):
    return bug.values[-1]["nodes"] > bug.values[0]["nodes"] > fix.values[-1]["nodes"]
