"""Gradients are only cleared if they are accumulated."""

from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import statement

FILE = "sockeye/training_pt.py"
CASE = Case(
    repository="awslabs/sockeye",
    fix="f2b1fe7516",
    license="Apache-2.0",
    kind="clearing",
    what="`zero_grad` is skipped with an update after each batch",
    paths=(FILE,),
    within={FILE: ((343, 347),)},
    also={FILE: (342, 348)},
    steps=4,
    options={"keep_steps": 3},
)


def build():
    names = {"pt": torch, "C": SimpleNamespace(GRADIENT_CLIPPING_TYPE_ABS="abs",
                                               GRADIENT_CLIPPING_TYPE_NORM="norm"),
             "data_io_pt": SimpleNamespace(Batch=object)}  # fmt: skip
    statement(FILE, "def _step(", names)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    data = [(torch.randn(16, 4), torch.randn(16, 1)) for _ in range(4)]

    def forward_backward(batch):
        loss = (model(batch.x) - batch.y).square().mean()
        loss.backward()
        return [loss]

    trainer = SimpleNamespace(
        _forward_backward=forward_backward, _speedometer=lambda *a: None, loss_functions=[],
        config=SimpleNamespace(update_interval=1), model=model,
        state=SimpleNamespace(batches=0, updates=0, samples=0, epoch=0),
        optimizer=torch.optim.SGD(model.parameters(), lr=0.05),
        optimizer_config=SimpleNamespace(gradient_clipping_type=None),
    )  # fmt: skip

    def step(number):
        norms = []
        hook = trainer.optimizer.register_step_pre_hook(
            lambda *a: norms.append(float(sum(p.grad.norm() ** 2 for p in model.parameters())))
        )
        x, y = data[number]
        names["_step"](trainer, SimpleNamespace(x=x, y=y, samples=16, tokens=16))
        hook.remove()
        return {"loss": (model(x) - y).square().mean().detach(), "norm": norms[0]}

    return model, step


def symptom(bug, fix):
    return bug.values[-1]["norm"] > 1.3 * fix.values[-1]["norm"]
