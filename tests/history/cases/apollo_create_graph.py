"""An optimizer computes with gradients that have a graph."""

import torch
from torch import nn

from tests.history.case import Case

CASE = Case(
    repository="jettify/pytorch-optimizer",
    fix="2a0c07adb5",
    license="Apache-2.0",
    kind="memory",
    what="without `no_grad`, the state of Apollo gets the graph of each gradient",
    paths=("torch_optimizer/apollo.py", "torch_optimizer/types.py"),
    within={"torch_optimizer/apollo.py": ((110, 125),)},
    also={"torch_optimizer/apollo.py": (77, 140, 142)},
    steps=4,
    options={"keep_steps": 3},
)


def build():
    from torch_optimizer.apollo import Apollo

    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = Apollo(model.parameters(), lr=0.01)
    x, y = torch.randn(16, 4), torch.randn(16, 1)

    def step(number):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward(create_graph=True)
        optimizer.step()
        return loss.detach()

    return model, step


def symptom(bug, fix):
    return bool(bug.error) or bug.grows()
