"""The contrast term of TiCo differentiates the covariance that it compares with."""

import torch
from torch import nn

from tests.history.case import Case

CASE = Case(
    repository="lightly-ai/lightly",
    fix="6bd7553bda",
    license="MIT",
    kind="detach",
    what="the covariance of the batch is not detached",
    paths=("lightly/loss/tico_loss.py",),
)


def build():
    from tests.history.excerpt import definitions

    names = definitions("lightly/loss/tico_loss.py", ["TiCoLoss"], {})
    criterion = names["TiCoLoss"](beta=0.5, rho=8.0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 6))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(16, 8)

    def step(number):
        optimizer.zero_grad()
        z_a = model(x + 0.1 * torch.randn_like(x))
        with torch.no_grad():
            z_b = model(x + 0.1 * torch.randn_like(x))
        loss = criterion(z_a, z_b)
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return abs(bug.norm() - fix.norm()) > 0.05 * fix.norm()
