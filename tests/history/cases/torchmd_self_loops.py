"""The norm of the distance of an atom to itself has no derivative."""

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "torchmdnet/models/utils.py"
CASE = Case(
    repository="torchmd/torchmd-net",
    fix="7345b88",
    license="MIT",
    kind="nan",
    what="`norm` of a self loop is 0, where its gradient is NaN in this PyTorch or was",
    paths=(FILE,),
    options={"fingerprints": True},
)


def build():
    def radius_graph(pos, r, batch, loop, max_num_neighbors):
        near = torch.cdist(pos.detach(), pos.detach()) < r
        return near.nonzero().T

    names = definitions(FILE, ["Distance"], {"radius_graph": radius_graph, "MessagePassing": None})
    distance = names["Distance"](0.0, 5.0, loop=True)
    model = nn.Sequential(nn.Linear(1, 8), nn.SiLU(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    start, forces = torch.randn(6, 3), torch.randn(6, 3)

    def step(number):
        optimizer.zero_grad()
        pos = start.clone().requires_grad_()
        _, weight = distance(pos, None)
        energy = model(weight[:, None].rsqrt().clamp(max=10)).sum()
        [dy] = torch.autograd.grad(energy, pos, create_graph=True)
        loss = nn.functional.mse_loss(-dy, forces)
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return bug.has_nan()
