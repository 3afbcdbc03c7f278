"""A functools.partial passes the state of the schedule to the checkpointed function."""
import functools

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


def noisy_block(x, layer, *, schedule):
    h = layer(x)
    if schedule["phase"] == "explore":
        h = h + schedule["scale"] * torch.sin(h)  # VICTIM
    return torch.tanh(h)


class Schedule(dict):
    def on_batch_end(self):
        self.update(phase="exploit", scale=0.0)  # CULPRIT


class Runner:
    def __init__(self, model, schedule):
        self.model = model
        self.block = functools.partial(noisy_block, layer=model, schedule=schedule)

    def __call__(self, x):
        return checkpoint(self.block, x, use_reentrant=False)


def go(early):
    torch.manual_seed(0)
    schedule = Schedule(phase="explore", scale=0.3)
    model = nn.Linear(4, 4)
    loss = Runner(model, schedule)(torch.randn(3, 4)).pow(2).sum()
    if early:
        schedule.on_batch_end()  # ALSO
    loss.backward()
    if not early:
        schedule.on_batch_end()
    return {n: p.grad for n, p in model.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
