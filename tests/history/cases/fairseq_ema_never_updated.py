"""The average of the weights is never updated if it should be in each step."""

from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "fairseq/models/ema/ema.py"
CASE = Case(
    repository="facebookresearch/fairseq",
    fix="1b61bbad32",
    license="MIT",
    kind="state",
    what="with a number of updates and a frequency of 1, no branch updates the copy",
    paths=(FILE,),
    also={FILE: (184, 193)},
    steps=4,
    options={"keep_steps": 3},
)


def build():
    names = definitions(FILE, ["EMA"], {})
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    config = SimpleNamespace(
        ema_decay=0.5, ema_seed_model=None, ema_fp32=False, ema_start_update=0, ema_update_freq=1
    )
    average = names["EMA"](model, config)
    start = average.model.weight.clone()
    x, y = torch.randn(16, 4), torch.randn(16, 1)

    def step(number):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        average.step(model, number)
        return {"loss": loss, "still": torch.equal(average.model.weight, start)}

    return model, step


def symptom(bug, fix):
    return bug.values[-1]["still"]
