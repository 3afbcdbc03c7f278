"""Rotation matrices are converted to quaternions with square roots of zero."""

import torch
from torch import nn

from tests.history.case import Case

FILE = "pytorch3d/transforms/rotation_conversions.py"
CASE = Case(
    repository="facebookresearch/pytorch3d",
    fix="4d52f9fb8b",
    license="BSD-3-Clause",
    kind="nan",
    what="the derivative of a square root is infinite at zero, and the rotation is the identity",
    paths=(FILE,),
    within={FILE: ((101, 104),)},
)


def build():
    from pytorch3d.transforms.rotation_conversions import matrix_to_quaternion

    model = nn.Linear(4, 9)
    with torch.no_grad():
        model.weight.zero_()
        model.bias.copy_(torch.eye(3).flatten())
    x, target = torch.randn(5, 4), nn.functional.normalize(torch.randn(5, 4), dim=1)

    def step(number):
        quaternions = matrix_to_quaternion(model(x).view(5, 3, 3))
        loss = (quaternions - target).square().mean()
        loss.backward()
        return loss

    return model, step


def symptom(bug, fix):
    return bug.has_nan()
