"""A contrastive loss takes the logarithm of a sum that underflows."""

import torch
from torch import nn

from tests.history.case import Case

CASE = Case(
    repository="HobbitLong/SupContrast",
    fix="4814037592",
    license="BSD-2-Clause",
    kind="nan",
    what="if all other samples are far away, the sum of the exponentials without the own one is 0",
    paths=("losses.py",),
)


def build():
    from losses import SupConLoss

    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    criterion = SupConLoss(temperature=0.07)
    views = 10 * torch.randn(2, 6, 8)
    labels = torch.arange(6) % 3

    def step(number):
        features = torch.stack([model(view) for view in views], dim=1)  # not normalized
        loss = criterion(features, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return bug.has_nan()
