"""Both views of Barlow Twins are normalized with the statistics of their union."""

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "lightly/loss/barlow_twins_loss.py"
CASE = Case(
    repository="lightly-ai/lightly",
    fix="39628df161",
    license="MIT",
    kind="axis",
    what="two batches are stacked before they are normalized over the batch",
    paths=(FILE,),
)


def build():
    names = definitions(FILE, ["BarlowTwinsLoss", "_normalize", "_off_diagonal"], {})
    criterion = names["BarlowTwinsLoss"]()
    model = nn.Linear(6, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(16, 6)

    def step(number):
        optimizer.zero_grad()
        first = model(x)
        second = 2 * model(x + 0.1 * torch.randn_like(x)) + 3  # the loss ought not to see this
        loss = criterion(first, second)
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return bug.losses[0] > 2 * fix.losses[0]
