"""A sharpness-aware optimizer needs gradients before it computes any."""

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "sam.py"
CASE = Case(
    repository="davda54/sam",
    fix="70225750cd",
    license="MIT",
    kind="no gradient",
    what="`step` climbs along the gradients of the step before, and there are none at first",
    paths=(FILE,),
    also={FILE: (45,)},
)


def build():
    names = definitions(FILE, ["SAM"], {})
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = names["SAM"](model.parameters(), torch.optim.SGD, lr=0.1)
    x, y = torch.randn(16, 4), torch.randn(16, 1)

    def step(number):
        def closure():
            optimizer.zero_grad()
            loss = (model(x) - y).square().mean()
            loss.backward()
            losses.append(loss.detach())

        losses = []
        optimizer.step(closure)
        return losses[0]

    return model, step


def symptom(bug, fix):
    return bool(bug.error)
