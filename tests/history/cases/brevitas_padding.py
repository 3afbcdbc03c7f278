"""A tensor is padded through `.data`, so its gradient ends there."""

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "src/brevitas/utils/torch_utils.py"
CASE = Case(
    repository="Xilinx/brevitas",
    fix="3402d4ae",
    license="BSD-3-Clause",
    kind="detach",
    what="`pad(tensor.data)` cuts the graph",
    paths=(FILE,),
)


def build():
    pad_to_dim = definitions(FILE, ["pad_to_dim"], {})["pad_to_dim"]
    model = nn.ModuleDict({"scale": nn.Linear(4, 6), "out": nn.Linear(8, 1)})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = torch.randn(8, 4), torch.randn(8, 1)

    def step(number):
        optimizer.zero_grad()
        hidden = pad_to_dim(model["scale"](x), 1, 8)
        loss = nn.functional.mse_loss(model["out"](hidden), y)
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return bug.missing("scale")
