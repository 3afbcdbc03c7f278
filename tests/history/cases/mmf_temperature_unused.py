"""A contrastive loss reads its learned temperature and does not use it."""

from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "mmf/modules/losses.py"
CASE = Case(
    repository="facebookresearch/mmf",
    fix="697da002",
    license="BSD-3-Clause",
    kind="unused",
    what="similarities are not divided by the temperature, which gets no gradient",
    paths=(FILE,),
)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.image, self.text = nn.Linear(8, 4), nn.Linear(6, 4)
        self.temperature = nn.Parameter(torch.tensor(0.1))

    def forward(self, image, text):
        first, second = self.image(image), self.text(text)
        return {
            "embedding_1": nn.functional.normalize(first, dim=-1),
            "embedding_2": nn.functional.normalize(second, dim=-1),
            "temperature": self.temperature,
        }


def build():
    names = definitions(FILE, ["ContrastiveLoss"], {
        "registry": SimpleNamespace(register_loss=lambda name: lambda cls: cls),
        "gather_tensor_along_batch_with_backward": lambda tensor: tensor, "get_rank": lambda: 0,
    })  # fmt: skip
    model, criterion = Model(), names["ContrastiveLoss"]()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    image, text = torch.randn(8, 8), torch.randn(8, 6)

    def step(number):
        optimizer.zero_grad()
        loss = criterion({}, model(image, text))
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return bug.missing("temperature")
