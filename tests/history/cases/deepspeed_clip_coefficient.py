"""Clipping takes the larger of 1 and the coefficient, so it never makes a gradient smaller."""

from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "deepspeed/runtime/utils.py"
CASE = Case(
    repository="microsoft/DeepSpeed",
    fix="005afe124f",
    license="Apache-2.0",
    kind="clipping",
    what="`max` of 1 and the clipping coefficient, where `min` is meant",
    paths=(FILE,),
    also={FILE: (412,)},
)


def build():
    names = definitions(
        FILE,
        ["clip_grad_norm_"],
        {
            "get_accelerator": lambda: SimpleNamespace(device_name=lambda: "cpu"),
            "inf": float("inf"),
            "groups": SimpleNamespace(_get_data_parallel_group=lambda: None),
            "dist": SimpleNamespace(
                get_world_size=lambda group: 1, all_reduce=lambda tensor, group: None
            ),
        },
    )
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = torch.randn(16, 4), torch.randn(16, 1) * 20

    def step(number):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        names["clip_grad_norm_"](model.parameters(), 1.0)
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return bug.norm() > 1.01
