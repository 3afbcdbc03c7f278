"""A batch norm for fields detaches the statistics that it normalizes with."""

import torch
from torch import nn

from tests.history.case import Case

FILE = "se3cnn/batchnorm.py"
CASE = Case(
    repository="e3nn/e3nn",
    fix="6f24cd5b",
    license="MIT",
    kind="detach",
    what="mean and norm of the batch are constants for backward",
    paths=(FILE,),
    within={FILE: ((67, 69), (82, 84))},
)


def build():
    from tests.history.excerpt import definitions

    SE3BatchNorm = definitions(FILE, ["SE3BatchNorm"], {})["SE3BatchNorm"]

    model = nn.Sequential(nn.Conv3d(1, 5, 3), SE3BatchNorm([(2, 1), (1, 3)]))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = torch.randn(4, 1, 5, 5, 5), torch.randn(4, 5, 3, 3, 3)

    def step(number):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return bug.norm() > 1.2 * fix.norm() and bug.losses == fix.losses
