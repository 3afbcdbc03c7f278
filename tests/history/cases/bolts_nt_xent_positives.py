"""A contrastive loss counts the positive pairs among the negative ones."""

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "pl_bolts/losses/self_supervised_learning.py"
CASE = Case(
    repository="Lightning-AI/lightning-bolts",
    fix="552763528",
    license="Apache-2.0",
    kind="formula",
    what="the mask of the denominator removes only the diagonal, so positive pairs are negatives",
    paths=(FILE,),
)


def build():
    loss_function = definitions(FILE, ["nt_xent_loss"], {})["nt_xent_loss"]
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    x = torch.randn(4, 6)
    views = x + 0.1 * torch.randn(4, 6), x + 0.1 * torch.randn(4, 6)

    def step(number):
        optimizer.zero_grad()
        first, second = (nn.functional.normalize(model(view), dim=-1) for view in views)
        loss = loss_function(first, second, 0.5)
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    mine, right = (run.grads[0]["0.weight"] for run in (bug, fix))
    return bool((mine - right).norm() > 0.1 * right.norm())
