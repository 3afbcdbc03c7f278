"""A contrastive loss divides by the number of positive pairs, which is zero for some anchors."""

import torch
from torch import nn

from tests.history.case import Case

CASE = Case(
    repository="HobbitLong/SupContrast",
    fix="72fd9894f3",
    license="BSD-2-Clause",
    kind="nan",
    what="an anchor without another sample of its class has a mean over zero pairs",
    paths=("losses.py",),
)


def build():
    from losses import SupConLoss

    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    criterion = SupConLoss()
    images, labels = torch.randn(4, 8), torch.tensor([0, 1, 1, 2])

    def step(number):
        features = nn.functional.normalize(model(images), dim=1)
        loss = criterion(features.unsqueeze(1), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return bug.has_nan()
