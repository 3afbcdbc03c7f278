"""A buffer for logging is written with the graph of a singular value in each step."""

import torch
from torch import nn

from tests.history.case import Case, count_nodes
from tests.history.excerpt import definitions

FILE = "layers.py"
CASE = Case(
    repository="ajbrock/BigGAN-PyTorch",
    fix="ddc0832",
    license="MIT",
    kind="memory",
    what="`self.sv[i][:] = sv` outside of `no_grad` appends to the graph of the buffer",
    paths=(FILE,),
    steps=4,
    options={"keep_steps": 4},
)


def build():
    names = definitions(FILE, ["proj", "gram_schmidt", "power_iteration", "SN", "SNLinear"], {})
    model = nn.Sequential(names["SNLinear"](6, 8), nn.Tanh(), names["SNLinear"](8, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    x, y = torch.randn(8, 6), torch.randn(8, 1)

    def step(number):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return {"loss": loss, "nodes": count_nodes(model[0].sv[0])}

    return model, step


def symptom(bug, fix):
    return bug.values[3]["nodes"] > bug.values[1]["nodes"] > 0
