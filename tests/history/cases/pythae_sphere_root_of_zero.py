"""The gradient of a sample on a sphere is NaN where a root is zero."""

import numpy as np
import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import statement

FILE = "src/pythae/models/svae/svae_model.py"
CASE = Case(
    repository="clementchadebec/benchmark_VAE",
    fix="dc0a136",
    license="Apache-2.0",
    kind="nan",
    what="`(1 - w ** 2).sqrt()` has an infinite slope at w = 1, which a large concentration reaches",
    paths=(FILE,),
)


def build():
    names = {"torch": torch, "np": np, "dist": torch.distributions}
    for method in ("_sample_von_mises", "_householder_rotation", "_acc_rej_steps"):
        statement(FILE, f"def {method}(", names)
    sampler = type("Sampler", (), {k: v for k, v in names.items() if k.startswith("_")})()
    model = nn.ModuleDict({
        "loc": nn.Linear(6, 3), "concentration": nn.Linear(6, 1), "decode": nn.Linear(3, 6),
    })  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    x = torch.randn(20000, 6)

    def step(number):
        optimizer.zero_grad()
        loc = nn.functional.normalize(model["loc"](x), dim=-1)
        concentration = 3e3 + nn.functional.softplus(model["concentration"](x))
        z = sampler._sample_von_mises(loc, concentration)
        loss = nn.functional.mse_loss(model["decode"](z), x)
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return bug.has_nan()
