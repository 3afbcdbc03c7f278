"""EMA weights are copied into the model for evaluation before backward."""

import copy

import torch
from torch import nn


class EMA:
    def __init__(self, model, decay=0.9):
        self.shadow = copy.deepcopy(model)
        self.decay = decay

    def swap_in(self, model):
        model.load_state_dict(self.shadow.state_dict())  # CULPRIT


def go(early):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    ema = EMA(model)
    x, y = torch.randn(5, 4), torch.randint(0, 2, (5,))
    loss = nn.functional.cross_entropy(model(x), y)  # VICTIM
    if early:
        ema.swap_in(model)  # ALSO
    loss.backward()
    return {n: p.grad for n, p in model.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
