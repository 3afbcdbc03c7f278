"""Clipping scales the parameter instead of its gradient, if there is only one."""

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "parlai/utils/fp16.py"
CASE = Case(
    repository="facebookresearch/ParlAI",
    fix="1e535400c",
    license="MIT",
    kind="clipping",
    what="the norm is that of the weight, and the weight is written in place",
    paths=(FILE,),
)


def build():
    clip_grad_norm = definitions(FILE, ["clip_grad_norm"], {"torch": torch})["clip_grad_norm"]
    model = nn.Linear(6, 6, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = torch.randn(8, 6), torch.randn(8, 6)

    def step(number):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        clip_grad_norm(model.parameters(), 0.1)
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return "in-place operation" in bug.error
