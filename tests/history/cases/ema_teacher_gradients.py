"""The averaged copy of a model collects gradients."""

import torch
from torch import nn

from tests.history.case import Case

CASE = Case(
    repository="lucidrains/ema-pytorch",
    fix="1f4dc2e5df",
    license="MIT",
    kind="frozen",
    what="the parameters of the copy require gradients, which nothing clears or uses",
    paths=("ema_pytorch/ema_pytorch.py",),
    also={"ema_pytorch/ema_pytorch.py": (53,)},
    steps=2,
    options={"keep_steps": 3},
)


def build():
    from ema_pytorch.ema_pytorch import EMA

    student = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 4))
    model = EMA(student, update_after_step=0, update_every=1)
    optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
    x = torch.randn(16, 4)

    def step(number):
        prediction = student(x + 0.1 * torch.randn_like(x))
        loss = nn.functional.mse_loss(prediction, model(x)) + prediction.square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        model.update()
        return loss.detach()

    return model, step


def symptom(bug, fix):
    return not bug.missing("ema_model") and fix.missing("ema_model")
