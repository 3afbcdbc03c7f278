"""The decoupled contrastive loss adds two log-sums where one over all negatives is meant."""

import torch
from torch import nn

from tests.history.case import Case

CASE = Case(
    repository="lightly-ai/lightly",
    fix="0111edc90d",
    license="MIT",
    kind="formula",
    what="two logsumexp are added, so negatives have twice the weight of positives",
    paths=("lightly/loss/dcl_loss.py",),
)


def build():
    from types import SimpleNamespace

    from tests.history.excerpt import definitions

    dist = SimpleNamespace(world_size=lambda: 1)
    names = definitions("lightly/loss/dcl_loss.py", ["DCLLoss"], {"dist": dist})
    criterion = names["DCLLoss"]()
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 6))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(16, 8)

    def step(number):
        optimizer.zero_grad()
        z0 = model(x + 0.1 * torch.randn_like(x))
        z1 = model(x + 0.1 * torch.randn_like(x))
        loss = criterion(z0, z1)
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return bug.norm() > 1.2 * fix.norm()
