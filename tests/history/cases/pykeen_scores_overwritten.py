"""Weights of negative samples are computed in the memory of the scores."""

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "src/pykeen/losses.py"
CASE = Case(
    repository="pykeen/pykeen",
    fix="4e79a7339",
    license="MIT",
    kind="in-place",
    what="`detach` shares memory, so the scores of true triples become infinite",
    paths=(FILE,),
)


class Loss(nn.Module):
    def __init__(self, reduction="mean"):
        super().__init__()
        self._reduction_method = torch.mean


def build():
    names = definitions(FILE, ["NSSALoss"], {"SetwiseLoss": Loss})
    criterion = names["NSSALoss"](margin=3.0)
    model = nn.ModuleDict({"entity": nn.Embedding(20, 8), "relation": nn.Embedding(4, 8)})
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    heads, relations = torch.randint(20, (6,)), torch.randint(4, (6,))
    labels = torch.zeros(6, 20)
    labels[torch.arange(6), torch.randint(20, (6,))] = 1.0

    def step(number):
        optimizer.zero_grad()
        query = model["entity"](heads) + model["relation"](relations)
        scores = -(query[:, None] - model["entity"].weight).abs().sum(-1)
        loss = criterion.process_lcwa_scores(scores, labels)
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return bug.has_nan()
