"""A reporter copies reported values with their graphs."""

import torch
from torch import nn

from tests.history.case import Case

CASE = Case(
    repository="pfnet/pytorch-pfn-extras",
    fix="39fd07116f",
    license="MIT",
    kind="memory",
    what="`clone` keeps the graph of each reported loss alive in the log",
    paths=("pytorch_pfn_extras/reporting.py",),
    steps=4,
    options={"keep_steps": 3},
)


def build():
    from pytorch_pfn_extras import reporting

    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = torch.randn(16, 8), torch.randn(16, 1)
    x_val, y_val = torch.randn(16, 8), torch.randn(16, 1)
    reporter, log = reporting.Reporter(), []

    def step(number):
        observation = {}
        with reporter.scope(observation):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            reporting.report({"train/loss": loss})
            loss.backward()
            optimizer.step()
            reporting.report({"val/loss": nn.functional.mse_loss(model(x_val), y_val)})
        log.append(observation)
        return loss.detach()

    return model, step


def symptom(bug, fix):
    return bug.live[-1] - bug.live[1] > fix.live[-1] - fix.live[1]
