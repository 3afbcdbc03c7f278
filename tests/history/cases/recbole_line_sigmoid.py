"""A loss of negative sampling averages probabilities instead of their logarithms."""

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "recbole/model/general_recommender/line.py"
CASE = Case(
    repository="RUCAIBox/RecBole",
    fix="62a14f32",
    license="MIT",
    kind="formula",
    what="the logarithm is missing, so pairs with a wrong score have almost no gradient",
    paths=(FILE,),
    within={FILE: ((25, 35),)},
)


def build():
    criterion = definitions(FILE, ["NegSamplingLoss"], {})["NegSamplingLoss"]()
    model = nn.ModuleDict({"user": nn.Embedding(10, 8), "item": nn.Embedding(20, 8)})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    users, items = torch.randint(10, (16,)), torch.randint(20, (16,))
    others = torch.randint(20, (16,))

    def step(number):
        optimizer.zero_grad()
        user = model["user"](users)
        positive = (user * model["item"](items)).sum(1)
        negative = (user * model["item"](others)).sum(1)
        ones = torch.ones(16)
        loss = criterion(ones, positive) + criterion(-ones, negative)
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return fix.norm() > 2 * bug.norm()
