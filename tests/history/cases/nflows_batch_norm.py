"""Running statistics of a flow's batch norm keep the graphs of all batches."""

import torch
from torch import nn

from tests.history.case import Case

CASE = Case(
    repository="bayesiains/nflows",
    fix="36dcabc9dc",
    license="MIT",
    kind="memory",
    what="running mean and variance are updated with tensors that have a graph",
    paths=("nflows/transforms/normalization.py", "nflows/transforms/base.py",
           "nflows/utils/typechecks.py", "nflows/utils/torchutils.py"),
    within={"nflows/transforms/normalization.py": ((106, 107),)},
    steps=4,
    options={"keep_steps": 3},
)  # fmt: skip


def build():
    from nflows.transforms.normalization import BatchNorm

    net = nn.Linear(4, 4)
    norm = BatchNorm(4)
    model = nn.ModuleDict({"net": net, "norm": norm})
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    data = torch.randn(4, 32, 4)

    def step(number):
        optimizer.zero_grad()
        z, logabsdet = norm(net(data[number]))
        loss = (0.5 * z.square().sum(1) - logabsdet).mean()
        loss.backward()
        optimizer.step()
        return {"loss": loss, "history": norm.running_mean.grad_fn is not None}

    return model, step


def symptom(bug, fix):
    return bug.values[-1]["history"]
