"""An optimizer corrects the bias of its moments in place, in each step again."""

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "holocron/optim/ralars.py"
CASE = Case(
    repository="frgfm/Holocron",
    fix="928ac50e",
    license="MIT",
    kind="optimizer",
    what="`div_` changes the state, so old gradients are divided by each correction since",
    paths=(FILE,),
    steps=4,
    options={"keep_steps": 4},
)


def build():
    from torch.optim import Optimizer

    optimizer_class = definitions(FILE, ["RaLars"], {"Optimizer": Optimizer})["RaLars"]
    model = nn.Linear(6, 2)
    optimizer = optimizer_class(model.parameters(), lr=1e-2)
    x, y = torch.randn(8, 6), torch.randn(8, 2)

    def step(number):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        moment = optimizer.state[model.weight]["exp_avg"]
        return {"loss": loss, "moment": moment.norm(), "gradient": model.weight.grad.norm()}

    return model, step


def symptom(bug, fix):
    return bug.values[0]["moment"] > 5 * fix.values[0]["moment"]
