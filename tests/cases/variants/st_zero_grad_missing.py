"""The loop never clears gradients."""

import torch
import torch.nn.functional as F
from torch import nn


def train(model, opt, batches, bug):
    for x, y in batches:
        loss = F.mse_loss(model(x), y)
        loss.backward()  # VICTIM
        opt.step()  # CULPRIT
        if not bug:
            opt.zero_grad()


def go(bug):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    train(model, opt, [(torch.randn(4, 3), torch.randn(4, 1)) for _ in range(4)], bug)
    return {n: p.detach().clone() for n, p in model.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
