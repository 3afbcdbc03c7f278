"""A block adds its residual in place to the result of an activation."""

import numpy as np
import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "projects/msg3d/models/msg3d_utils.py"
CASE = Case(
    repository="open-mmlab/mmaction2",
    fix="bc90644705",
    license="Apache-2.0",
    kind="in-place",
    what="without a residual 0 is added, and still the result that ReLU saved is changed",
    paths=(FILE,),
)


def build():
    names = {
        "BaseModule": nn.Module, "ModuleList": nn.ModuleList, "Sequential": nn.Sequential,
        "build_activation_layer": lambda config: nn.ReLU(), "unit_tcn": None,
        "k_adjacency": lambda A, k, with_self: np.linalg.matrix_power(A, k + 1),
        "normalize_digraph": lambda A: A / A.sum(0),
    }  # fmt: skip
    definitions(FILE, ["MLP", "ST_MSGCN"], names)
    block = names["ST_MSGCN"](3, 4, np.ones((5, 5), dtype=np.float32), 2, 1)
    model = nn.Sequential(block, nn.Flatten(), nn.Linear(4 * 6 * 5, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = torch.randn(4, 3, 6, 5), torch.randint(2, (4,))

    def step(number):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return "inplace" in bug.error
