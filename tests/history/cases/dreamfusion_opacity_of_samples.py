"""Penalties for the opacity of rays are computed from the weights of samples."""

from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import statement

FILE = "nerf/utils.py"
CASE = Case(
    repository="ashawkey/stable-dreamfusion",
    fix="920b167",
    license="Apache-2.0",
    kind="formula",
    what="weights of samples are small also where a ray is opaque, so the penalty is another",
    paths=(FILE,),
)


def build():
    model = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 4))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    points = torch.randn(8, 1, 3) + torch.linspace(-1, 1, 16)[None, :, None]
    target = torch.rand(8, 3)
    names = {"torch": torch, "self": SimpleNamespace(
        opt=SimpleNamespace(lambda_opacity=0.1, lambda_entropy=0.01))}  # fmt: skip

    def step(number):
        optimizer.zero_grad()
        field = model(points)
        alpha = 1 - (-field[..., 0].exp() * 0.2).exp()
        passed = torch.cumprod(1 - alpha, 1)
        weights = alpha * torch.cat([torch.ones(8, 1), passed[:, :-1]], 1)
        colors = (weights[..., None] * field[..., 1:].sigmoid()).sum(1)
        names["outputs"] = {"weights": weights, "weights_sum": weights.sum(1)}
        names["loss"] = nn.functional.mse_loss(colors, target)
        statement(FILE, "if self.opt.lambda_opacity > 0:", names)
        statement(FILE, "if self.opt.lambda_entropy > 0:", names)
        loss = names["loss"]
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    mine, right = (run.grads[0]["0.weight"] for run in (bug, fix))
    return bool((mine - right).norm() > 0.1 * right.norm())
