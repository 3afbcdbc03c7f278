"""A Lightning module keeps the log of each training step, with its graph."""

from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import statement

FILE = "pytorch_forecasting/models/base/_base_model.py"
CASE = Case(
    repository="sktime/pytorch-forecasting",
    fix="a88a404399",
    license="MIT",
    kind="memory",
    what="losses are appended to a list that lives as long as the epoch",
    paths=(FILE,),
    within={FILE: ((715, 730),)},
    steps=4,
    options={"keep_steps": 3},
)


def build():
    def detach(log):
        return {name: value.detach() for name, value in log.items()}

    names = {"detach": detach}
    statement(FILE, "def training_step(self", names)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def compute(x, y, batch_idx):
        out = model(x)
        loss = nn.functional.mse_loss(out, y)
        return {"loss": loss, "mae": (out - y).abs().mean()}, out

    module = SimpleNamespace(step=compute, training_step_outputs=[])
    batch = torch.randn(16, 4), torch.randn(16, 1)

    def step(number):
        optimizer.zero_grad()
        loss = names["training_step"](module, batch, number)["loss"]
        loss.backward()
        optimizer.step()
        return loss.detach()

    return model, step


def symptom(bug, fix):
    return bug.live[-1] - bug.live[1] > fix.live[-1] - fix.live[1]
