"""A training loop clears gradients only without mixed precision."""

import logging
from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import statement

FILE = "lavis/tasks/base_task.py"
CASE = Case(
    repository="salesforce/LAVIS",
    fix="b7198ad",
    license="BSD-3-Clause",
    kind="clearing",
    what="`zero_grad` is in the branch without a scaler, so gradients of all steps are added",
    paths=(FILE,),
    options={"keep_steps": 4},
)


class Logger:
    def __init__(self, delimiter):
        self.meters = {}

    def log_every(self, iterable, frequency, header):
        return iterable

    def __getattr__(self, name):
        return lambda *values, **options: ""


def build():
    names = {
        "torch": torch, "logging": logging, "MetricLogger": Logger,
        "SmoothedValue": lambda **options: None, "prepare_sample": lambda samples, **o: samples,
    }  # fmt: skip
    statement(FILE, "def _train_inner_loop(", names)
    model = nn.Linear(6, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    used, losses = [], []
    optimizer.register_step_pre_hook(lambda *_: used.append(model.weight.grad.clone()))

    def train_step(model, samples):
        loss = nn.functional.mse_loss(model(samples["x"]), samples["y"])
        losses.append(loss.detach())
        return loss

    task = SimpleNamespace(train_step=train_step)
    data = [{"x": torch.randn(8, 6), "y": torch.randn(8, 2)} for _ in range(4)]
    scaler = torch.amp.GradScaler("cpu", enabled=False)

    def step(number):
        names["_train_inner_loop"](
            task, 0, 4, model, data, optimizer, SimpleNamespace(step=lambda **where: None), scaler
        )
        return {"loss": losses[-1], "gradient": used[-1]}

    return model, step


def symptom(bug, fix):
    mine, right = (run.values[0]["gradient"] for run in (bug, fix))
    return bool((mine - right).norm() > 0.3 * right.norm())
