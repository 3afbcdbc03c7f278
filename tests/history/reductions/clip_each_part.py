"""Gradients of an accumulated batch are clipped after each part instead of once, at the end."""

import torch
from torch import nn

FOUND = True


def train(clip_parts):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 7), nn.GELU(), nn.Linear(7, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    parts = [(torch.randn(6, 5), torch.randn(6, 2) * 3) for _ in range(3)]
    optimizer.zero_grad()
    for x, y in parts:
        (nn.functional.mse_loss(model(x), y) / len(parts)).backward()
        if clip_parts:
            nn.utils.clip_grad_norm_(model.parameters(), 0.2)  # CULPRIT
    if not clip_parts:
        nn.utils.clip_grad_norm_(model.parameters(), 0.2)
    optimizer.step()
    return [p.grad.clone() for p in model.parameters()]


def run():
    return train(clip_parts=True)


def reference():
    return train(clip_parts=False)
