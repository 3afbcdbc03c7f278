"""A gradient penalty takes the norm of the whole masked image."""

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "mmedit/models/losses/gan_loss.py"
CASE = Case(
    repository="open-mmlab/mmagic",
    fix="5f71b305",
    license="NONE",
    kind="formula",
    what="the norm is over all pixels, and the part outside the mask counts in the mean",
    paths=(FILE,),
)


def build():
    penalty = definitions(FILE, ["gradient_penalty_loss"], {})["gradient_penalty_loss"]
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.LeakyReLU(0.2), nn.Conv2d(8, 1, 3))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    real, fake = torch.rand(2, 3, 8, 8), torch.rand(2, 3, 8, 8)
    mask = torch.zeros(2, 1, 8, 8)
    mask[:, :, 2:6, 2:6] = 1

    def step(number):
        optimizer.zero_grad()
        loss = model(fake).mean() - model(real).mean() + 10 * penalty(model, real, fake, mask)
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    mine, right = (run.grads[0]["0.weight"] for run in (bug, fix))
    return bool((mine - right).norm() > 0.2 * right.norm())
