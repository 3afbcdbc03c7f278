"""The distance of a point on a sphere to itself has an infinite gradient."""

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "geoopt/manifolds/sphere.py"
CASE = Case(
    repository="geoopt/geoopt",
    fix="cdfe1ea",
    license="Apache-2.0",
    kind="nan",
    what="the inner product is clamped to 1, where acos has an infinite derivative",
    paths=(FILE,),
    options={"fingerprints": True},
)


def build():
    names = {"Manifold": nn.Module, "ManifoldTensor": torch.Tensor, "size2shape": tuple}
    sphere = definitions(FILE, ["EPS", "_sphere_doc", "Sphere"], names)["Sphere"]()
    model = nn.Embedding(6, 4)
    with torch.no_grad():
        model.weight.copy_(torch.eye(6, 4))
        model.weight[4:] = torch.tensor([[0.6, 0.8, 0.0, 0.0], [0.0, 0.6, 0.8, 0.0]])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    left, right = torch.tensor([0, 1, 2, 4]), torch.tensor([1, 1, 4, 5])

    def step(number):
        optimizer.zero_grad()
        points = sphere.projx(model.weight)
        loss = sphere.dist(points[left], points[right]).mean()
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return bug.has_nan()
