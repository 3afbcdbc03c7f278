"""Averages of parameters are paired with the wrong parameters."""

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "torch_ema/ema.py"
CASE = Case(
    repository="fadel/pytorch_ema",
    fix="05fe2c74d7",
    license="MIT",
    kind="ema",
    what="the averages leave out frozen parameters, and `zip` does not",
    paths=(FILE,),
    also={FILE: (25, 26)},
    steps=4,
)


def build():
    names = definitions(FILE, ["ExponentialMovingAverage"], {})
    model = nn.Sequential(*(nn.Linear(4, 4, bias=False) for _ in range(3)))
    model[0].weight.requires_grad_(False)
    average = names["ExponentialMovingAverage"](model.parameters(), 0.9)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = torch.randn(8, 4), torch.randn(8, 4)

    def step(number):
        optimizer.zero_grad()
        teacher = model[0](x) @ average.shadow_params[0].T @ average.shadow_params[1].T
        prediction = model(x)
        loss = (prediction - y).square().mean() + (prediction - teacher).square().mean()
        loss.backward()
        optimizer.step()
        average.update(model.parameters())
        return {
            "loss": loss,
            "distance": float((average.shadow_params[1] - model[2].weight).norm()),
        }

    return model, step


def symptom(bug, fix):
    return bug.values[-1]["distance"] > 10 * fix.values[-1]["distance"]
