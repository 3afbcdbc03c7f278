"""The z-loss of a router is a sum of log-sums instead of a mean of their squares."""

import typing

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "st_moe_pytorch/st_moe_pytorch.py"
CASE = Case(
    repository="lucidrains/st-moe-pytorch",
    fix="cfa0e51051",
    license="MIT",
    kind="scale",
    what="the log-sums are not squared, and added over the sequence",
    paths=(FILE,),
    within={FILE: ((315, 325),)},
)


def build():
    names = definitions(
        FILE,
        ["MIN_EXPERT_CAPACITY", "exists", "default", "top1", "cumsum_exclusive", "safe_one_hot",
         "Top2Gating"],
        dict(vars(typing)),
    )  # fmt: skip
    gate = names["Top2Gating"](8, 4, second_policy_train="all")
    model = nn.ModuleDict({"embed": nn.Linear(8, 8), "gate": gate})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(2, 16, 8)

    def step(number):
        optimizer.zero_grad()
        _, combine, balance, z_loss = gate(model["embed"](x))
        loss = combine.square().mean() + 0.01 * balance + 1e-3 * z_loss
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return abs(bug.norm() - fix.norm()) > 0.1 * fix.norm()
