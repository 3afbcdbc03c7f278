"""Missing references are removed from a loss, and not from its gradient."""

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "nequip/train/_loss.py"
CASE = Case(
    repository="mir-group/nequip",
    fix="4f1c6ee2",
    license="MIT",
    kind="nan",
    what="`nan_to_num` of the loss has a gradient of zero times NaN",
    paths=(FILE,),
    within={FILE: ((1, 66),)},
)


def build():
    loss_class = definitions(FILE, ["SimpleLoss"], {
        "instantiate_from_cls_name": lambda module, class_name, **settings: (
            getattr(module, class_name)(reduction="none"), None,
        ),
    })["SimpleLoss"]  # fmt: skip
    criterion = loss_class("MSELoss", {"has_nan": True})
    model = nn.Sequential(nn.Linear(6, 8), nn.SiLU(), nn.Linear(8, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    x, energy = torch.randn(8, 6), torch.randn(8, 1)
    energy[3] = torch.nan

    def step(number):
        optimizer.zero_grad()
        loss = criterion({"energy": model(x)}, {"energy": energy}, "energy")
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return bug.has_nan()
