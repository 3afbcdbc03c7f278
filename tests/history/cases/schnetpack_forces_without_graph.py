"""Forces are computed without a graph, so a loss on them trains nothing."""

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "src/schnetpack/atomistic/output_modules.py"
CASE = Case(
    repository="atomistic-machine-learning/schnetpack",
    fix="e5f1e06a",
    license="MIT",
    kind="double backward",
    what="`create_graph` is False by default, and the loss of the forces has no gradient",
    paths=(FILE,),
    also={FILE: (151, 155)},
    stubs={
        "schnetpack": "class Structure:\n    R, Z, atom_mask = 'positions', 'numbers', 'mask'\n",
        "schnetpack.nn": "",
        "schnetpack.nn.activations": "shifted_softplus = None\n",
        "schnetpack.nn.base": (
            "import torch\n"
            "class ScaleShift(torch.nn.Module):\n"
            "    def __init__(self, mean, stddev):\n"
            "        super().__init__()\n"
            "    def forward(self, x):\n"
            "        return x\n"
            "class Aggregate(torch.nn.Module):\n"
            "    def __init__(self, axis, mean):\n"
            "        super().__init__()\n"
            "    def forward(self, x, mask):\n"
            "        return (x * mask[..., None]).sum(1)\n"
        ),
    },
)


class Energies(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 1))

    def forward(self, inputs):
        return self.net(inputs["positions"])


def build():
    model = definitions(FILE, ["Atomwise"], {})["Atomwise"](
        n_in=16, property="energy", derivative="forces", negative_dr=True, outnet=Energies()
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    inputs = {
        "positions": torch.randn(4, 5, 3, requires_grad=True), "mask": torch.ones(4, 5),
        "numbers": torch.ones(4, 5, dtype=torch.long),
    }  # fmt: skip
    energy, forces = torch.randn(4, 1), torch.randn(4, 5, 3)

    def step(number):
        optimizer.zero_grad()
        result = model(inputs)
        loss = nn.functional.mse_loss(result["energy"], energy)
        loss = 0.01 * loss + nn.functional.mse_loss(result["forces"], forces)
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    mine, right = (run.grads[0]["out_net.net.0.weight"] for run in (bug, fix))
    return bool((mine - right).norm() > 0.3 * right.norm())
