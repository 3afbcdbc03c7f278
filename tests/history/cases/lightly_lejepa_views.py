"""A regularizer sees only the local views."""

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "lightly/loss/lejepa_loss.py"
CASE = Case(
    repository="lightly-ai/lightly",
    fix="948454fed3",
    license="MIT",
    kind="unused",
    what="global projections take part in neither the regularizer nor, as views, the invariance",
    paths=(FILE,),
    within={FILE: ((30, 38), (318, 345))},
)


def build():
    from types import SimpleNamespace

    names = definitions(
        FILE,
        ["lejepa_invariance_loss", "_validate_projection_shapes", "SIGReg", "LeJEPALoss"],
        {"lightly_dist": SimpleNamespace(world_size=lambda: 1)},
    )
    criterion = names["LeJEPALoss"](lambda_param=0.9, sigreg_num_vectors=16)
    model = nn.ModuleDict({"local": nn.Linear(6, 4), "global": nn.Linear(6, 4)})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(16, 6)

    def step(number):
        optimizer.zero_grad()
        local = torch.stack([model["local"](x + 0.1 * torch.randn_like(x)) for _ in range(2)])
        whole = torch.stack([model["global"](x + 0.1 * torch.randn_like(x)) for _ in range(2)])
        loss = criterion(local_proj=local, global_proj=whole)
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return bug.norm("global") < 0.5 * fix.norm("global")
