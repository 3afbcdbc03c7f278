"""A likelihood copies the noise into a new tensor, so its normalizer has no gradient."""

from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import statement

FILE = "laplace/baselaplace.py"
CASE = Case(
    repository="aleximmer/Laplace",
    fix="9d7b2f5",
    license="MIT",
    kind="detach",
    what="`torch.tensor` of a tensor detaches it, and the noise grows without a bound",
    paths=(FILE,),
)


def build():
    from math import pi, sqrt

    names = {"torch": torch, "sqrt": sqrt, "pi": pi}
    statement(FILE, "def log_likelihood(", names)
    model = nn.ParameterDict({"log_sigma": torch.zeros(1), "log_prior": torch.zeros(1)})
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    residuals, weights = 0.1 * torch.randn(40), torch.randn(10)

    def step(number):
        optimizer.zero_grad()
        sigma = model["log_sigma"].exp()
        fitted = SimpleNamespace(
            likelihood="regression", n_data=40, n_outputs=1, sigma_noise=sigma,
            loss=residuals.square().sum(), _H_factor=1 / sigma.square() / 2,
        )  # fmt: skip
        prior = model["log_prior"].exp()
        scatter = weights.square().sum() * prior - 10 * prior.log()
        loss = (scatter / 2 - names["log_likelihood"].fget(fitted)).sum()
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    mine, right = (run.grads[0]["log_sigma"] for run in (bug, fix))
    return bool(mine < 0 < right)
