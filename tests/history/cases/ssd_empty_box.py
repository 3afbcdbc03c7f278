"""The target of a box without a width is the logarithm of zero."""

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "layers/box_utils.py"
CASE = Case(
    repository="amdegroot/ssd.pytorch",
    fix="8f5d652",
    license="MIT",
    kind="nan",
    what="a box in the data is a line, so its encoded width and the loss are infinite",
    paths=(FILE,),
)


def build():
    names = definitions(FILE, ["point_form", "intersect", "jaccard", "match", "encode"], {})
    model = nn.ModuleDict({"location": nn.Linear(8, 4), "class": nn.Linear(8, 3)})
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    features = torch.randn(1, 20, 8)
    priors = torch.cat([torch.rand(20, 2), 0.1 + 0.3 * torch.rand(20, 2)], 1)
    truths = torch.tensor([[0.1, 0.1, 0.4, 0.5], [0.6, 0.3, 0.6, 0.7]])
    labels = torch.tensor([0, 1])

    def step(number):
        optimizer.zero_grad()
        locations, classes = torch.zeros(1, 20, 4), torch.zeros(1, 20, dtype=torch.long)
        names["match"](0.5, truths, priors, [0.1, 0.2], labels, locations, classes, 0)
        positive = classes > 0
        loss = nn.functional.smooth_l1_loss(
            model["location"](features)[positive], locations[positive], reduction="sum"
        )
        loss = loss + nn.functional.cross_entropy(model["class"](features)[0], classes[0])
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return bug.has_nan()
