"""The variable that says whether gradients are accumulated has the opposite value."""

import torch
from torch import nn

FOUND = True


def train(negated):
    torch.manual_seed(0)
    model, losses = nn.Linear(5, 2), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for number in range(8):
        waits = ((number + 1) % 4 == 0) == negated  # CULPRIT
        loss = nn.functional.cross_entropy(model(torch.randn(8, 5)), torch.randint(2, (8,)))
        loss.backward()
        losses.append(loss.detach())
        if not waits:
            optimizer.step()
            optimizer.zero_grad()
    return [p.detach().clone() for p in model.parameters()]


def run():
    return train(negated=True)


def reference():
    return train(negated=False)
