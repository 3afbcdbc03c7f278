"""The likelihood of an expert's action at the bound is not finite."""

from typing import Any

import torch

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "models.py"
CASE = Case(
    repository="Kaixhin/imitation-learning",
    fix="771ba90",
    license="MIT",
    kind="nan",
    what="the inverse of `tanh` is infinite for an action of one",
    paths=(FILE,),
)


class Settings(dict):
    def __getattr__(self, name):
        return self[name]


def build():
    actor_class = definitions(FILE, ["ACTIVATION_FUNCTIONS", "_create_fcnn", "SoftActor"], {
        "DictConfig": Any,
    })["SoftActor"]  # fmt: skip
    model = actor_class(4, 2, Settings(hidden_size=8, depth=1, activation="tanh"))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    states, actions = torch.randn(8, 4), torch.rand(8, 2) * 2 - 1
    actions[2, 1] = 1.0

    def step(number):
        optimizer.zero_grad()
        loss = -model.log_prob(states, actions).mean()
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return bug.has_nan()
