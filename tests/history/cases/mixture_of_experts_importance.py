"""The gate of a mixture of experts masks its own softmax in place."""

import torch
from torch import nn

from tests.history.case import Case

CASE = Case(
    repository="lucidrains/mixture-of-experts",
    fix="04201ee9d1",
    license="MIT",
    kind="in-place",
    what="`density_1_proxy *= ...` writes the softmax that the gates are made of",
    paths=("mixture_of_experts/mixture_of_experts.py",),
)


def build():
    from mixture_of_experts.mixture_of_experts import Top2Gating

    gate = Top2Gating(8, 4)
    model = nn.ModuleDict({"embed": nn.Linear(8, 8), "gate": gate})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(2, 16, 8)
    importance = torch.ones(2, 16)
    importance[:, 12:] = 0.5

    def step(number):
        optimizer.zero_grad()
        _, combine, balance = gate(model["embed"](x), importance=importance)
        loss = combine.square().mean() + 0.01 * balance
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return "modified by an inplace operation" in bug.error
