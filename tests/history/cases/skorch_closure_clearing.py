"""A closure that an optimizer calls several times does not clear the gradients."""

from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import statement

FILE = "skorch/net.py"
CASE = Case(
    repository="skorch-dev/skorch",
    fix="abc0ec531f",
    license="BSD-3-Clause",
    kind="clearing",
    what="L-BFGS evaluates the closure several times, and the gradients add up",
    paths=(FILE,),
    also={FILE: (656, 657)},
    options={"keep_steps": 3},
)


def build():
    names = {}
    statement(FILE, "def train_step(self", names)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=5)
    steps = []

    def train_step_single(x, y):
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        return {"loss": loss}

    accumulator = SimpleNamespace(store_step=steps.append, get_step=lambda: steps[0])
    net = SimpleNamespace(
        optimizer_=optimizer, train_step_single=train_step_single,
        get_train_step_accumulator=lambda: accumulator,
    )  # fmt: skip
    x, y = torch.randn(16, 4), torch.randn(16, 1)

    def step(number):
        names["train_step"](net, x, y)
        return {"loss": steps[-1]["loss"].detach(), "weight": model.weight}

    return model, step


def symptom(bug, fix):
    return not torch.allclose(bug.values[0]["weight"], fix.values[0]["weight"], atol=1e-3)
