"""An unrolled iteration writes its history into tensors that earlier iterations have saved."""

from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "deepinv/optim/fixed_point.py"
CASE = Case(
    repository="deepinv/deepinv",
    fix="f7fdff8e3e",  # includes 6d94b8727, and keeps the histories
    bug="2de8ea39bf",
    license="BSD-3-Clause",
    kind="in-place",
    what="the histories of the Anderson acceleration are changed in place in each iteration",
    paths=(FILE,),
    within={FILE: ((191, 209),)},
)


class Iterator(nn.Module):
    cost_fn = None

    def __init__(self):
        super().__init__()
        self.prior = nn.Linear(6, 6)

    def forward(self, X, fidelity, prior, parameters, y):
        x = X["est"][0]
        return {"est": (x - 0.5 * (x - y) - 0.1 * torch.tanh(self.prior(x)),), "cost": None}


def build():
    fixed_point = definitions(FILE, ["FixedPoint"], {"tqdm": lambda numbers, disable: numbers})[
        "FixedPoint"
    ]
    model = fixed_point(
        iterator=Iterator(), max_iter=4, early_stop=False,
        init_iterate_fn=lambda y, init, cost_fn: {"est": (y,), "cost": None},
        anderson_acceleration_config=SimpleNamespace(history_size=3, beta=1.0, eps=1e-4, full_backprop=True),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    y, target = torch.randn(4, 6), torch.randn(4, 6)

    def step(number):
        optimizer.zero_grad()
        X, _ = model(y)
        loss = nn.functional.mse_loss(X["est"][0], target)
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return "inplace" in bug.error
