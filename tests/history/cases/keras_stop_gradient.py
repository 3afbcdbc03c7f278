"""Stopping a gradient changes a flag that only leaves have."""

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "keras_core/backend/torch/core.py"
CASE = Case(
    repository="keras-team/keras-core",
    fix="55c3800fe4",
    license="Apache-2.0",
    kind="requires_grad",
    what="`requires_grad_(False)` on the result of an op raises",
    paths=(FILE,),
)


def build():
    stop_gradient = definitions(FILE, ["stop_gradient"], {})["stop_gradient"]
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(16, 4)

    def step(number):
        optimizer.zero_grad()
        online = model(x)
        target = stop_gradient(model(x.flip(1)))
        loss = nn.functional.mse_loss(online, target)
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return "leaf variables" in bug.error
