"""Importances of parameters are computed from gradients that some parameters do not have."""

from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import statement

FILE = "avalanche/training/plugins/ewc.py"
CASE = Case(
    repository="ContinualAI/avalanche",
    fix="54a515a7d0",
    license="MIT",
    kind="unused",
    what="a head that the current task does not use has no gradient",
    paths=(FILE,),
)


class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 8)
        self.heads = nn.ModuleList([nn.Linear(8, 3), nn.Linear(8, 3)])
        self.task = 0

    def forward(self, x):
        return self.heads[self.task](torch.tanh(self.body(x)))


def build():
    names = {
        "torch": torch, "DataLoader": torch.utils.data.DataLoader,
        "zerolike_params_dict": lambda model: [
            (name, torch.zeros_like(p)) for name, p in model.named_parameters()],
    }  # fmt: skip
    statement(FILE, "def compute_importances(", names)
    model = Heads()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = [(torch.randn(4), n % 3, 0) for n in range(8)]
    x, y = torch.randn(8, 4), torch.randint(3, (8,))

    def step(number):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        importances = names["compute_importances"](
            SimpleNamespace(), model, nn.functional.cross_entropy, optimizer, data, "cpu", 4
        )
        return {"loss": loss, "importance": importances[0][1]}

    return model, step


def symptom(bug, fix):
    return bool(bug.error)
