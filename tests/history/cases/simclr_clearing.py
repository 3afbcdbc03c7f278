"""A training loop never clears its gradients."""

from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import statement

FILE = "train.py"
CASE = Case(
    repository="sthalles/SimCLR",
    fix="af77a03f0b",
    license="MIT",
    kind="clearing",
    what="there is no `zero_grad`",
    paths=(FILE,),
    within={FILE: ((50, 70),)},
    also={FILE: (104, 105)},
    options={"keep_steps": 3},
)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(6, 8), nn.Linear(8, 4)

    def forward(self, x):
        hidden = self.body(x).relu()
        return hidden, self.head(hidden)


def build():
    from itertools import count

    model = Model()
    mask = ~torch.eye(4, dtype=torch.bool).repeat(1, 2)
    names = {
        "torch": torch, "F": nn.functional, "model": model, "train_gpu": False, "batch_size": 4,
        "train_writer": SimpleNamespace(add_histogram=lambda *a, **k: None,
                                        add_scalar=lambda *a, **k: None),
        "sim_func_dim1": lambda a, b: (a * b).sum(1), "sim_func_dim2": lambda a, b: a @ b.T,
        "temperature": 0.5, "negative_mask": mask, "n_iter": 0, "config": {}, "plt": None,
        "criterion": nn.CrossEntropyLoss(reduction="sum"), "tqdm": lambda x: x, "count": count,
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.05),
        "train_loader": [((torch.randn(4, 6), torch.randn(4, 6)), None) for _ in range(4)],
    }  # fmt: skip

    def step(number):
        statement(FILE, "for step, ((xis, xjs), _) in enumerate(", names)
        return {"loss": names["loss"].detach()}

    return model, step


def symptom(bug, fix):
    return bug.norm() > 1.3 * fix.norm()
