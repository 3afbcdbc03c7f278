"""A robust loss is quadratic for all negative errors."""

from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import statement

FILE = "deep_rl/agent/QuantileRegressionDQN_agent.py"
CASE = Case(
    repository="ShangtongZhang/DeepRL",
    fix="a7e0700",
    license="Apache-2.0",
    kind="formula",
    what="the error is compared with the bound without its absolute value",
    paths=(FILE,),
)


def build():
    names = {"torch": torch}
    statement(FILE, "def huber(", names)
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 8))
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    states, target = torch.randn(16, 6), 20 * torch.randn(16, 1) - 10 + torch.randn(16, 8)
    fraction = (2 * torch.arange(8) + 1) / 16.0

    def step(number):
        optimizer.zero_grad()
        quantiles = model(states)
        difference = target.t().unsqueeze(-1) - quantiles
        weight = (fraction - (difference.detach() < 0).float()).abs()
        loss = (names["huber"](SimpleNamespace(), difference) * weight).mean(0).mean(1).sum()
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return bug.norm() > 2 * fix.norm()
