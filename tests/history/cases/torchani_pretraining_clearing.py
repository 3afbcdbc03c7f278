"""The loop that trains a potential first does not clear gradients."""

from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import statement

FILE = "examples/nnp_training.py"
CASE = Case(
    repository="aiqm/torchani",
    fix="c6fac2e5",
    license="MIT",
    kind="clearing",
    what="gradients of all batches before are added to those of a batch",
    paths=(FILE,),
    options={"keep_steps": 4},
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
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    species = torch.tensor([[0, 0, 1, -1], [0, 1, 1, 1]])
    training = [
        ([(species, torch.randn(2, 4, 3)), (species[:, :3], torch.randn(2, 3, 3))],
         {"energies": torch.randn(4)})
        for _ in range(3)
    ]  # fmt: skip
    names = {
        "torch": torch, "model": model, "nn": model.net, "optimizer": optimizer,
        "tqdm": SimpleNamespace(tqdm=lambda batches: batches), "training": training,
        "mse": nn.MSELoss(reduction="none"), "pretrain_epoches": 1,
    }  # fmt: skip

    def step(number):
        statement(FILE, "for _ in range(pretrain_epoches):", names)
        return names["loss"]

    return model, step


def symptom(bug, fix):
    mine, right = (run.grads[-1]["net.0.weight"] for run in (bug, fix))
    return bool((mine - right).norm() > 0.3 * right.norm())
