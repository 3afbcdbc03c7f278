"""A counter of accumulated batches begins at one, so each step is a batch too early."""

from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "catalyst/dl/callbacks/base.py"
CASE = Case(
    repository="catalyst-team/catalyst",
    fix="4fbfbb3c0",
    license="Apache-2.0",
    kind="scale",
    what="each step uses the sum of three batches instead of four",
    paths=(FILE,),
)


def build():
    names = definitions(
        FILE, ["OptimizerCallback"],
        {
            "Callback": object, "RunnerState": object, "Dict": dict,
            "GRAD_CLIPPERS": SimpleNamespace(get_from_params=lambda **options: None),
        },
    )  # fmt: skip
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    steps = []
    optimizer.register_step_pre_hook(lambda *_: steps.append(1))
    callback = names["OptimizerCallback"](accumulation_steps=4)
    x, y = torch.randn(12, 8, 4), torch.randn(12, 8, 1)

    def step(number):
        for batch in range(12):
            loss = nn.functional.mse_loss(model(x[batch]), y[batch])
            state = SimpleNamespace(model=model, need_backward=True)
            state.get_key = lambda key, inner_key=None, loss=loss: {
                "loss": loss, "optimizer": optimizer,
            }[key]  # fmt: skip
            callback.on_batch_end(state)
        return {"loss": loss, "steps": len(steps)}

    return model, step


def symptom(bug, fix):
    return bug.values[0]["steps"] == 4
