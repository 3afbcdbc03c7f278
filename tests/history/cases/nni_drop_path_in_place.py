"""Paths are dropped in place, and that of a skip connection is an input of other operations."""

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions, find

FILE = "examples/nas/darts/ops.py"
CASE = Case(
    repository="microsoft/nni",
    fix="c892912a5",
    license="MIT",
    kind="in-place",
    what="`div_` and `mul_` overwrite a tensor that a convolution needs in its backward",
    paths=(FILE,),
    within={FILE: ((26, 28),)},
)


class Cell(nn.Module):
    def __init__(self, drop_path):
        super().__init__()
        self.conv, self.skip = nn.Conv2d(4, 4, 3, padding=1), nn.Identity()
        self.norm, self.drop_path = nn.BatchNorm2d(4), drop_path

    def forward(self, x):
        outputs = [self.norm(self.conv(x)), self.skip(x)]
        return sum(self.drop_path(output) for output in outputs)


def build():
    source = find(FILE).read_text(encoding="utf-8")
    name = "DropPath_" if "class DropPath_(" in source else "DropPath"
    drop_path = definitions(FILE, [name], {})[name](0.3)
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), Cell(drop_path), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(4, 5),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = torch.randn(8, 3, 6, 6), torch.randint(5, (8,))

    def step(number):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return "inplace operation" in bug.error
