"""A trainer clears the gradients before its handlers can read them."""

from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "ignite/engine/__init__.py"
CASE = Case(
    repository="pytorch/ignite",
    fix="f14b184820",
    license="BSD-3-Clause",
    kind="clearing",
    what="`zero_grad` right after `step`: logged gradients are None or zero",
    paths=(FILE,),
    within={FILE: ((96, 108),)},
)


def build():
    names = definitions(
        FILE,
        ["_prepare_batch", "supervised_training_step"],
        {"convert_tensor": lambda x, **options: x, "Engine": object, "Events": None, "State": None,
         "DeterministicEngine": None, "Metric": None, "idist": None},
    )  # fmt: skip
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    update = names["supervised_training_step"](model, optimizer, nn.functional.mse_loss)
    engine = SimpleNamespace(state=SimpleNamespace(iteration=0))
    batch = torch.randn(16, 4), torch.randn(16, 1)

    def step(number):
        engine.state.iteration += 1
        loss = update(engine, batch)
        # A handler of the event "iteration completed".
        logged = 0.0 if model.weight.grad is None else float(model.weight.grad.norm())
        return {"loss": loss, "logged": logged}

    return model, step


def symptom(bug, fix):
    return bug.values[0]["logged"] == 0.0
