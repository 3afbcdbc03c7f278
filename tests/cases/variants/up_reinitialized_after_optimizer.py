"""Layers are reinitialized with new Parameters after the optimizer was created."""

import torch
import torch.nn.functional as F
from torch import nn


def reset(module):
    if isinstance(module, nn.Linear):
        module.weight = nn.Parameter(torch.randn_like(module.weight) * 0.02)  # CULPRIT


def reset_in_place(module):
    if isinstance(module, nn.Linear):
        with torch.no_grad():
            module.weight.normal_(std=0.02)


def go(bug):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    model.apply(reset if bug else reset_in_place)  # ALSO
    for _ in range(2):
        opt.zero_grad()
        F.cross_entropy(model(torch.randn(5, 4)), torch.randint(0, 2, (5,))).backward()  # VICTIM
        opt.step()
    return {n: p.detach().clone() for n, p in model.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
