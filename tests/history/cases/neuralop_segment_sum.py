"""A sum over neighborhoods is written into `.data`, so its input gets no gradient."""

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "neuralop/layers/segment_csr.py"
CASE = Case(
    repository="neuraloperator/neuraloperator",
    fix="53b7f2d808",
    license="MIT",
    kind="detach",
    what="the result is a new leaf that requires gradients, filled through `.data`",
    paths=(FILE,),
)


def build():
    segment_csr = definitions(FILE, ["segment_csr"], {})["segment_csr"]
    model = nn.ModuleDict({"kernel": nn.Linear(3, 8), "head": nn.Linear(8, 1)})
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    edges, y = torch.randn(10, 3), torch.randn(4, 1)
    splits = torch.tensor([0, 3, 5, 9, 10])

    def step(number):
        optimizer.zero_grad()
        messages = torch.tanh(model["kernel"](edges))
        nodes = segment_csr(messages, splits, reduce="mean", use_scatter=False)
        loss = nn.functional.mse_loss(model["head"](nodes), y)
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return bug.missing("kernel") and not fix.missing("kernel")
