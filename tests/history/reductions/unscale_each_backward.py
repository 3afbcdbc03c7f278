"""A loss scaler remembers one division for each backward, but their sum is scaled only once."""

import torch
from torch import nn

FOUND = False


class Scaler:
    def __init__(self, model, scale, once):
        self.parameters, self.scale, self.once = list(model.parameters()), scale, once
        self.factor = 1.0 / scale if once else 1.0

    def backward(self, loss):
        (loss * self.scale).backward()
        if not self.once:
            self.factor /= self.scale  # CULPRIT

    def step(self, optimizer):
        for p in self.parameters:
            p.grad.mul_(self.factor)
        optimizer.step()


def train(once):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = Scaler(model, 64.0, once)
    for _ in range(2):
        x, y = torch.randn(8, 4), torch.randn(8, 1)
        scaler.backward(nn.functional.mse_loss(model(x), y) / 2)
    scaler.step(optimizer)
    return [p.grad.clone() for p in model.parameters()]


def run():
    return train(once=False)


def reference():
    return train(once=True)
