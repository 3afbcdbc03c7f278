"""An accumulator of gradients is not cleared after it was used."""

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "jactorch/optim/accum_grad.py"
CASE = Case(
    repository="vacancy/Jacinle",
    fix="f268e98540",
    license="MIT",
    kind="accumulation",
    what="each averaged gradient stays in the buffer, and adds to the next one",
    paths=(FILE,),
    steps=4,
    options={"keep_steps": 5},
)


def build():
    wrapper = definitions(FILE, ["AccumGrad"], {"CustomizedOptimizer": object})["AccumGrad"]
    model = nn.Linear(4, 1)
    base = torch.optim.SGD(model.parameters(), lr=0.01)
    optimizer = wrapper(base, 2)
    used = []
    base.register_step_pre_hook(lambda *_: used.append(model.weight.grad.clone()))
    batches = [(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(4)]

    def step(number):
        x, y = batches[number]
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return {"loss": loss, "used": used[-1] if used else None}

    return model, step


def symptom(bug, fix):
    first, second = bug.values[-1]["used"], fix.values[-1]["used"]
    return bool((first - second).norm() > 0.1 * second.norm())
