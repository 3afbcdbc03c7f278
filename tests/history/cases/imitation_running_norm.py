"""The running statistics of a normalization layer are computed with gradients."""

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "src/imitation/util/networks.py"
CASE = Case(
    repository="HumanCompatibleAI/imitation",
    fix="c85278fa75",
    license="MIT",
    kind="in-place",
    what="the statistics are updated with gradients, and ops in place overwrite what these need",
    paths=(FILE,),
    also={FILE: (82, 98, 100, 101, 102, 103, 105)},
)


def build():
    names = definitions(FILE, ["RunningNorm"], {})
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), names["RunningNorm"](6), nn.Linear(6, 1))
    x, y = torch.randn(16, 4), torch.randn(16, 1)

    def step(number):
        loss = (model(x) - y).square().mean()
        loss.backward()
        return loss

    return model, step


def symptom(bug, fix):
    return "inplace" in bug.error
