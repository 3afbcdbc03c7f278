"""Eigenvalues are shifted in place, and the backward of the decomposition needs them."""

import logging
from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "laplace/utils.py"
CASE = Case(
    repository="aleximmer/Laplace",
    fix="46b3bba",
    license="MIT",
    kind="in-place",
    what="`-=` overwrites the eigenvalues that the backward of `eigh` needs",
    paths=(FILE,),
)


class Torch:
    """The package, with a decomposition whose first call does not converge."""

    def __init__(self):
        self.failures = 1
        self.linalg = SimpleNamespace(eigh=self.eigh)

    def eigh(self, matrix, **options):
        if self.failures:
            self.failures -= 1
            message = "the algorithm failed to converge"
            raise RuntimeError(message)
        return torch.linalg.eigh(matrix, **options)

    def __getattr__(self, name):
        return getattr(torch, name)


def build():
    symeig = definitions(FILE, ["symeig"], {"torch": Torch(), "logging": logging})["symeig"]
    model = nn.Linear(6, 4)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    x = torch.randn(16, 6)

    def step(number):
        optimizer.zero_grad()
        features = model(x).tanh()
        values, _ = symeig(features.t() @ features / 16)
        loss = values.add(1.0).log().sum() + model.weight.square().sum()
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return "inplace operation" in bug.error
