"""A divergence is averaged over the labels of a batch that has none."""

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "src/llamafactory/train/trainer_utils.py"
CASE = Case(
    repository="hiyouga/LLaMA-Factory",
    fix="f6e213be6",
    license="Apache-2.0",
    kind="nan",
    what="all labels are ignored, so the sum is divided by zero",
    paths=(FILE,),
    steps=3,
    options={"keep_steps": 3},
)


def build():
    names = definitions(FILE, ["_asft_cross_entropy", "_dft_cross_entropy", "_kl_divergence"], {
        "torch": torch, "F": nn.functional,
    })  # fmt: skip
    model = nn.Sequential(nn.Embedding(20, 8), nn.Linear(8, 20))
    reference = nn.Sequential(nn.Embedding(20, 8), nn.Linear(8, 20)).requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    tokens = torch.randint(20, (3, 12))
    labels = tokens.roll(-1, 1)
    labels[0, :6] = -100
    labels[1] = -100

    def step(number):
        optimizer.zero_grad()
        loss = names["_asft_cross_entropy"](
            model(tokens[number]), labels[number], reference(tokens[number])
        )
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return bug.has_nan()
