"""The mean over the neighbors of a node without neighbors is zero divided by zero."""

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "se3_transformer_pytorch/utils.py"
CASE = Case(
    repository="lucidrains/se3-transformer-pytorch",
    fix="2811715",
    license="MIT",
    kind="nan",
    what="a masked mean divides by the number of unmasked neighbors, which can be zero",
    paths=(FILE,),
)


def build():
    masked_mean = definitions(FILE, ["masked_mean"], {"torch": torch})["masked_mean"]
    model = nn.ModuleDict({"message": nn.Linear(6, 8), "out": nn.Linear(8, 1)})
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    neighbors, target = torch.randn(2, 4, 5, 6), torch.randn(2, 4, 1)
    mask = torch.rand(2, 4, 5) > 0.3
    mask[1, 3] = False

    def step(number):
        optimizer.zero_grad()
        hidden = masked_mean(model["message"](neighbors), mask, dim=2)
        loss = nn.functional.mse_loss(model["out"](hidden), target)
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return bug.has_nan()
