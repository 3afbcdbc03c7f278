"""The likelihood of a continuous transformer takes a variance for a standard deviation."""

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "x_transformers/continuous.py"
CASE = Case(
    repository="lucidrains/x-transformers",
    fix="8a1ffc6",
    license="MIT",
    kind="formula",
    what="`Normal(mean, var)` has the variance in place of the standard deviation",
    paths=(FILE,),
    within={FILE: ((40, 60),)},
)


def build():
    loss_class = definitions(FILE, ["GaussianNLL"], {
        "Module": nn.Module, "F": nn.functional, "Normal": torch.distributions.Normal,
    })["GaussianNLL"]  # fmt: skip
    model = nn.Linear(6, 4)
    criterion = loss_class()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    x, y = torch.randn(8, 6), 2 * torch.randn(8, 2)

    def step(number):
        optimizer.zero_grad()
        mean, log_variance = model(x).chunk(2, -1)
        loss = criterion((mean, log_variance.exp()), y).mean()
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    mine, right = (run.grads[0]["weight"] for run in (bug, fix))
    return bool((mine - right).norm() > 0.2 * right.norm())
