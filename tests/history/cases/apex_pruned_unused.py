"""A pruning optimizer masks the gradient of a layer that has none."""

from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import statement

FILE = "apex/contrib/sparsity/asp.py"
CASE = Case(
    repository="NVIDIA/apex",
    fix="774de91358",
    license="BSD-3-Clause",
    kind="no gradient",
    what="`p.grad` is None for a layer that took no part in the loss",
    paths=(FILE,),
)


def build():
    model = nn.ModuleDict({"used": nn.Linear(4, 4), "unused": nn.Linear(4, 4)})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    masks = {name: torch.ones(4, 4) for name in model}
    cls = SimpleNamespace()
    setattr(
        cls, "__sparse_parameters",
        [(name, module, "weight", module.weight, masks[name], None)
         for name, module in model.items()],
    )  # fmt: skip
    names = {"torch": torch, "cls": cls}
    statement(FILE, "def __step(opt_self", names)
    original = SimpleNamespace()
    setattr(original, "__step", optimizer.step)
    x = torch.randn(8, 4)

    def step(number):
        optimizer.zero_grad()
        loss = model["used"](x).square().mean()
        loss.backward()
        names["__step"](original)
        return loss

    return model, step


def symptom(bug, fix):
    return "NoneType" in bug.error
