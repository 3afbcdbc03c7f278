"""A distance from sums of squares is negative by rounding, and its root is NaN."""

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "mmcv/ops/points_sampler.py"
CASE = Case(
    repository="open-mmlab/mmcv",
    fix="4a0e992958",
    license="Apache-2.0",
    kind="nan",
    what="`sqrt` of a squared distance that rounding makes negative",
    paths=(FILE,),
    options={"fingerprints": True},
)


def build():
    names = definitions(FILE, ["calc_square_dist"], {})
    model = nn.Linear(3, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    points = torch.randn(2, 16, 3) * 10

    def step(number):
        optimizer.zero_grad()
        features = model(points)
        distances = names["calc_square_dist"](features, features)
        loss = (distances + torch.eye(16)).clamp(max=5).mean()
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return bug.has_nan()
