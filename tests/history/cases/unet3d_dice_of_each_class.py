"""A generalized Dice loss divides for each class before it sums over the classes."""

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "unet3d/losses.py"
CASE = Case(
    repository="wolny/pytorch-3dunet",
    fix="07300ec",
    license="MIT",
    kind="formula",
    what="weights of classes cancel in each quotient, so rare classes have no more weight",
    paths=(FILE,),
)


def build():
    names = definitions(FILE, ["GeneralizedDiceLoss", "flatten"], {})
    criterion = names["GeneralizedDiceLoss"](sigmoid_normalization=False)
    model = nn.Conv3d(1, 3, 3, padding=1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    x = torch.randn(1, 1, 4, 4, 4)
    labels = (torch.rand(1, 4, 4, 4) * 10 - 7).clamp(min=0).long()
    target = nn.functional.one_hot(labels, 3).movedim(-1, 1).contiguous()

    def step(number):
        optimizer.zero_grad()
        loss = criterion(model(x), target)
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    mine, right = (run.grads[0]["weight"] for run in (bug, fix))
    return bool((mine - right).norm() > 0.1 * right.norm())
