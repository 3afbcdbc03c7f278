"""Settings are attributes of a module; a warm-up callback changes one before backward."""
import sys
import types

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

settings = types.ModuleType("my_settings")
settings.soft_cap = None
sys.modules["my_settings"] = settings


class Callbacks:
    def __init__(self):
        self.before_backward, self.after_step = [], []

    def fire(self, name):
        for callback in getattr(self, name):
            callback()


def warm_up_done():
    settings.soft_cap = 5.0  # CULPRIT


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(6, 9)

    def forward(self, x):
        logits = self.out(x)
        if settings.soft_cap is not None:
            logits = settings.soft_cap * torch.tanh(logits / settings.soft_cap)
        return logits.log_softmax(-1)  # VICTIM


def go(hook):
    torch.manual_seed(0)
    settings.soft_cap = None
    callbacks = Callbacks()
    getattr(callbacks, hook).append(warm_up_done)
    head = Head()
    loss = -checkpoint(head, torch.randn(3, 6), use_reentrant=False)[:, 0].mean()
    callbacks.fire("before_backward")
    loss.backward()
    callbacks.fire("after_step")
    return {n: p.grad for n, p in head.named_parameters()}


def run():
    return go("before_backward")


def reference():
    return go("after_step")
