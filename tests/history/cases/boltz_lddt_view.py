"""A score is averaged over axes that were separated in the wrong order."""

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "src/boltz/model/loss/diffusion.py"
CASE = Case(
    repository="jwohlwend/boltz",
    fix="7e9c5b67ef",
    license="MIT",
    kind="shape",
    what="`view` groups samples of different structures, and their scores are averaged",
    paths=(FILE,),
)


def build():
    loss_function = definitions(FILE, ["smooth_lddt_loss"], {})["smooth_lddt_loss"]
    model = nn.Linear(6, 3)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    true = 8 * torch.randn(2, 10, 3)
    true[1] *= 2
    true = true.repeat_interleave(2, 0)
    features = torch.cat([true + torch.randn(4, 10, 3), torch.randn(4, 10, 3)], -1)
    nucleotide, mask = torch.zeros(2, 10), torch.ones(2, 10)

    def step(number):
        optimizer.zero_grad()
        loss = loss_function(model(features), true, nucleotide, mask, multiplicity=2)
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    first, second = bug.grads[0]["weight"], fix.grads[0]["weight"]
    return bool((first - second).norm() > 0.1 * second.norm())
