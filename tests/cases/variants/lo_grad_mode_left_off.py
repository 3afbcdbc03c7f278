"""The evaluation turns grad mode off and returns early (early stopping) before turning it on again."""

import torch
import torch.nn.functional as F
from torch import nn


def evaluate(model, loader, limit, bug):
    torch.set_grad_enabled(False)  # CULPRIT
    total = 0.0
    for i, (x, y) in enumerate(loader):
        total += F.mse_loss(model(x), y).item()
        if total > limit:
            if not bug:
                torch.set_grad_enabled(True)
            return None
    torch.set_grad_enabled(True)
    return total / len(loader)


def train_one_epoch(model, opt, loader):
    for x, y in loader:
        opt.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()  # VICTIM
        opt.step()


def go(bug):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1))
    opt = torch.optim.Adam(model.parameters())
    loader = [(torch.randn(4, 3), torch.randn(4, 1)) for _ in range(2)]
    try:
        for _ in range(2):
            train_one_epoch(model, opt, loader)
            evaluate(model, loader, 0.1, bug)  # ALSO
    finally:
        torch.set_grad_enabled(True)
    return {n: p.grad for n, p in model.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
