"""The loss of a molecule is divided by the number of its atoms instead of the root."""

from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import statement

FILE = "examples/nnp_training.py"
CASE = Case(
    repository="aiqm/torchani",
    fix="b0d29d09",
    license="MIT",
    kind="scale",
    what="squared errors are divided by the number of atoms, so large molecules count too little",
    paths=(FILE,),
)


class Potential(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 16), nn.CELU(0.1), nn.Linear(16, 1))

    def forward(self, molecules):
        species, coordinates = molecules
        energies = self.net(coordinates).squeeze(-1)
        return species, energies.masked_fill(species < 0, 0.0).sum(1)


def build():
    model = Potential()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    species = torch.tensor([[0, 0] + [-1] * 8, [0, 1, 1, 1, 0, 1, 1, 0, 0, 0]])
    training = [([(species, torch.randn(2, 10, 3))], {"energies": torch.randn(2)})]
    names = {
        "torch": torch, "model": model, "nn": model.net, "optimizer": optimizer,
        "tqdm": SimpleNamespace(tqdm=lambda batches, total: batches), "training": training,
        "mse": nn.MSELoss(reduction="none"),
        "scheduler": SimpleNamespace(last_epoch=0),
        "tensorboard": SimpleNamespace(add_scalar=lambda *values: None),
    }  # fmt: skip

    def step(number):
        statement(FILE, "for i, (batch_x, batch_y) in tqdm.tqdm", names)
        return names["loss"]

    return model, step


def symptom(bug, fix):
    return fix.norm() > 1.5 * bug.norm()
