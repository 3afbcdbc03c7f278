"""AdamP divides by the root of a second moment that is zero."""

import torch
from torch import nn

from tests.history.case import Case

PACKAGE = "pytorch_optimizer"
CASE = Case(
    repository="kozistr/pytorch_optimizer",
    fix="bd612f72bf",
    license="Apache-2.0",
    kind="nan",
    what="`rsqrt` of a second moment that is zero is infinite, and infinity times zero is NaN",
    paths=(f"{PACKAGE}/optimizer/adamp.py", f"{PACKAGE}/base/exception.py",
           f"{PACKAGE}/base/optimizer.py", f"{PACKAGE}/base/type.py",
           f"{PACKAGE}/optimizer/gradient_centralization.py",
           f"{PACKAGE}/optimizer/foreach_utils.py",
           f"{PACKAGE}/optimizer/utils.py"),
    within={f"{PACKAGE}/optimizer/adamp.py": ((320, 340),)},
    stubs={
        "pytorch_optimizer": "",
        "pytorch_optimizer.optimizer": "",
        "pytorch_optimizer.base": "",
    },
    steps=2,
    options={"fingerprints": True},
)  # fmt: skip


def build():
    import sys
    from pathlib import Path

    root = next(p for p in sys.path if Path(p, PACKAGE, "optimizer/adamp.py").is_file())
    for name in ("", ".optimizer", ".base"):
        folder = Path(root, PACKAGE, *name.strip(".").split("."))
        sys.modules[PACKAGE + name].__path__ = [str(folder)]
    from pytorch_optimizer.optimizer.adamp import AdamP

    model = nn.Sequential(nn.Embedding(10, 4), nn.Flatten(), nn.Linear(12, 1))
    optimizer = AdamP(model.parameters(), lr=1e-3)
    tokens, y = torch.randint(5, (8, 3)), torch.randn(8, 1)  # some words never occur

    def step(number):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(tokens), y)
        loss.backward()
        optimizer.step()
        return {"loss": loss, "weight": model[0].weight}

    return model, step


def symptom(bug, fix):
    return not bug.values[-1]["weight"].isfinite().all()
