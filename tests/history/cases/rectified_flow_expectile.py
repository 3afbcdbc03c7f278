"""An expectile loss asks whether a square is negative."""

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "train_mean_flow_ql.py"
CASE = Case(
    repository="lucidrains/rectified-flow-pytorch",
    fix="6a686724ae",
    license="MIT",
    kind="constant",
    what="`loss < 0` is never true, so all errors have the same weight",
    paths=(FILE,),
)


def build():
    names = definitions(FILE, ["expectile_l2_loss"], {})
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = torch.randn(32, 4), torch.randn(32, 1)

    def step(number):
        optimizer.zero_grad()
        loss = names["expectile_l2_loss"](model(x), y, tau=0.9)
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return abs(bug.norm() - fix.norm()) > 0.1 * fix.norm()
