"""A vector field keeps its last value with the graph of the step."""

import copy

import torch
from torch import nn

from tests.history.case import Case, count_nodes
from tests.history.excerpt import definitions

FILE = "torchdyn/models/defunc.py"
CASE = Case(
    repository="DiffEqML/torchdyn",
    fix="464081b",
    license="Apache-2.0",
    kind="memory",
    what="`self.dxds` holds a result with a graph, so the model cannot be copied after a step",
    paths=(FILE,),
)


def build():
    field_class = definitions(FILE, ["DEFunc"], {})["DEFunc"]
    model = field_class(nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    start, end = torch.randn(8, 2), torch.randn(8, 2)

    def step(number):
        optimizer.zero_grad()
        x = start
        for point in torch.linspace(0, 1, 5):
            x = x + 0.2 * model(point, x)
        loss = nn.functional.mse_loss(x, end)
        loss.backward()
        optimizer.step()
        average = copy.deepcopy(model)
        return {"loss": loss, "nodes": count_nodes(getattr(average, "dxds", None))}

    return model, step


def symptom(bug, fix):
    return "deepcopy" in bug.error
