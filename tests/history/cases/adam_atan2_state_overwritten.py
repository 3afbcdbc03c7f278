"""An optimizer computes its denominator in the tensor of its running average."""

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "adam_atan2_pytorch/adam_atan2.py"
CASE = Case(
    repository="lucidrains/adam-atan2-pytorch",
    fix="a033030",
    license="MIT",
    kind="optimizer",
    what="`exp_avg_sq.mul_(...).sqrt_()` overwrites the average of squared gradients",
    paths=(FILE,),
    steps=4,
    options={"keep_steps": 4},
)


def build():
    optimizer_class = definitions(FILE, ["exists", "AdamAtan2"], {})["AdamAtan2"]
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = optimizer_class(model.parameters(), lr=0.01)
    x, y = torch.randn(16, 6), torch.randn(16, 1)

    def step(number):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return {"loss": loss, "square": optimizer.state[model[0].weight]["exp_avg_sq"].mean()}

    return model, step


def symptom(bug, fix):
    return bool(bug.values[-1]["square"] > 10 * fix.values[-1]["square"])
