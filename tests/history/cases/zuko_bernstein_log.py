"""The Jacobian of a transformation is multiplied before its logarithm is taken."""

import torch
from torch import nn

from tests.history.case import Case

FILE = "zuko/transforms.py"
CASE = Case(
    repository="probabilists/zuko",
    fix="96db9c928a",  # with the correction of bcf0f9a
    bug="801a3d96f0",
    license="MIT",
    kind="nan",
    what="the derivative of a saturated sigmoid is zero, and its logarithm infinite",
    paths=("zuko/", FILE),
    within={FILE: ((711, 723),)},
)


class Flow(nn.Module):
    def __init__(self, transform):
        super().__init__()
        self.transform = transform
        self.theta = nn.Parameter(torch.randn(2, 6))

    def forward(self, x):
        y, determinant = self.transform(self.theta).call_and_ladj(x)
        return (-0.5 * y.square() + determinant).sum(-1)


def build():
    from zuko.transforms import BernsteinTransform

    model = Flow(BernsteinTransform)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    x = 4 * torch.randn(8, 2)
    x[0, 0] = 25.0

    def step(number):
        optimizer.zero_grad()
        loss = -model(x).mean()
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return bug.has_nan()
