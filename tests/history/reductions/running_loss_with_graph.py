"""A running sum of losses gets the history of each step."""

import torch
from torch import nn

FOUND = True


def train(detach):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 2))
    optimizer = torch.optim.Adam(model.parameters())
    running = torch.zeros(())
    for _ in range(4):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(torch.randn(8, 5)), torch.randint(2, (8,)))
        loss.backward()
        optimizer.step()
        if detach:
            running += loss.detach()
        else:
            running += loss  # CULPRIT
    return [torch.tensor(running.requires_grad)]


def run():
    return train(detach=False)


def reference():
    return train(detach=True)
