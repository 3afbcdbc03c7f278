"""A cutoff function divides by zero for a distance at the cutoff."""

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "src/schnetpack/nn/cutoff.py"
CASE = Case(
    repository="atomistic-machine-learning/schnetpack",
    fix="23ba51c3",
    license="MIT",
    kind="nan",
    what="the mask includes the cutoff itself, where the exponent is infinite",
    paths=(FILE,),
)


def build():
    mollifier = definitions(FILE, ["mollifier_cutoff"], {})["mollifier_cutoff"]
    model = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    positions = torch.tensor([[0.0, 0.0, 0.0], [3.0, 0.0, 0.0], [0.0, 5.0, 0.0], [1.0, 1.0, 0.0]])
    forces = torch.randn(4, 3)

    def step(number):
        optimizer.zero_grad()
        points = positions.clone().requires_grad_()
        distances = (points[1:] - points[:1]).norm(dim=-1)
        energy = (model(distances[:, None])[:, 0] * mollifier(distances, cutoff=5.0)).sum()
        (slope,) = torch.autograd.grad(energy, points, create_graph=True)
        loss = nn.functional.mse_loss(-slope, forces)
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return bug.has_nan()
