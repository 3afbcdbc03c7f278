"""Gradients are clipped after the optimizer has used them."""

import torch
import torch.nn.functional as F
from torch import nn


def train_step(model, opt, x, y, bug):
    opt.zero_grad()
    loss = 50 * F.mse_loss(model(x), y)
    loss.backward()
    if bug:
        opt.step()  # VICTIM
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # CULPRIT
    else:
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
    return loss.item()


def go(bug):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(3):
        train_step(model, opt, torch.randn(4, 3), torch.randn(4, 1), bug)
    return {n: p.detach().clone() for n, p in model.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
