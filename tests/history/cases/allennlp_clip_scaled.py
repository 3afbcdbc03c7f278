"""Gradients are clipped while they are scaled."""

import typing
from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions, find, statement

FILE, UTIL = "allennlp/training/gradient_descent_trainer.py", "allennlp/training/util.py"
CASE = Case(
    repository="allenai/allennlp",
    fix="17ef1aa2d2",
    license="Apache-2.0",
    kind="clipping",
    what="a hook clips scaled gradients; unscaling makes them almost zero",
    paths=(FILE, UTIL),
    within={FILE: ((500, 800),)},
    also={UTIL: (239, 240, 241)},
)


def build():
    from torch.amp.grad_scaler import OptState

    clamp = SimpleNamespace(
        clamp_tensor=lambda tensor, minimum, maximum: tensor.clamp(minimum, maximum)
    )
    util = definitions(UTIL, ["enable_gradient_clipping"], {"nn_util": clamp, "Model": nn.Module})
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    trainer = SimpleNamespace(
        model=model, optimizer=optimizer, _scaler=scaler, _grad_clipping=0.5, _grad_norm=False
    )
    names = {
        **vars(typing), "self": trainer, "torch": torch, "OptState": OptState,
        "training_util": SimpleNamespace(**util),
    }  # fmt: skip
    # The fix moves clipping from hooks, registered once, to a method that each step calls.
    clips = "def clip_gradient(" in find(FILE).read_text(encoding="utf-8")
    if clips:
        statement(FILE, "def clip_gradient(", names)
    else:
        statement(FILE, "training_util.enable_gradient_clipping(", names)
    x, y = torch.randn(16, 4), torch.randn(16, 1)

    def step(number):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        scaler.scale(loss).backward()
        if clips:
            names["clip_gradient"](trainer)
        scaler.step(optimizer)
        scaler.update()
        return loss

    return model, step


def symptom(bug, fix):
    return bug.norm() < 0.1 * fix.norm()
