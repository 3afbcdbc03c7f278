"""A likelihood passes a standard deviation to a loss that expects a variance."""

from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import find, statement

FILE = "darts/utils/likelihood_models.py"
CASE = Case(
    repository="unit8co/darts",
    fix="18493fc089",
    license="Apache-2.0",
    kind="loss",
    what="`GaussianNLLLoss` is called with sigma in place of its square",
    paths=(FILE,),
)


def build():
    names = {"torch": torch}
    source = find(FILE).read_text(encoding="utf-8")
    before = source[: source.index("self.nllloss(means_out")]
    statement(FILE, "def _nllloss(", names, before.count("def _nllloss(") - 1)
    model = nn.Linear(4, 2)
    likelihood = SimpleNamespace(beta_nll=0.5, nllloss=nn.GaussianNLLLoss(reduction="none"))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    x = torch.randn(32, 4)
    y = x.sum(1) + 3 * torch.randn(32)

    def step(number):
        mean, scale = model(x).unbind(1)
        loss = names["_nllloss"](likelihood, (mean, nn.functional.softplus(scale)), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    first, second = bug.grads[0]["weight"], fix.grads[0]["weight"]
    return bool((first - second).norm() > 0.1 * second.norm())
