"""Scores are reshaped where their axes should be exchanged."""

from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import statement

FILE = "train.py"
CASE = Case(
    repository="clovaai/deep-text-recognition-benchmark",
    fix="eeea63c746",
    license="Apache-2.0",
    kind="shape",
    what="`view` gives the shape that the loss expects, and mixes classes with positions",
    paths=(FILE,),
)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.image, self.embedding = nn.Linear(6, 8), nn.Embedding(5, 8)
        self.head = nn.Linear(8, 5)

    def forward(self, image, text):
        return self.head(torch.tanh(self.image(image).unsqueeze(1) + self.embedding(text)))


def build():
    model = Model()
    names = {
        "torch": torch, "model": model, "criterion": nn.CrossEntropyLoss(ignore_index=0),
        "opt": SimpleNamespace(Prediction="TransformerDecoder", grad_clip=5),
        "optimizer": torch.optim.Adam(model.parameters(), lr=1e-3),
        "image": torch.randn(4, 6), "text": torch.randint(5, (4, 8)),
    }  # fmt: skip

    def step(number):
        for start in ("elif 'TransformerDecoder' in opt.Prediction:", "model.zero_grad()",
                      "cost.backward()", "torch.nn.utils.clip_grad_norm_(", "optimizer.step()"):  # fmt: skip
            statement(FILE, start, names)
        return names["cost"]

    return model, step


def symptom(bug, fix):
    first, second = bug.grads[0]["head.weight"], fix.grads[0]["head.weight"]
    return bool((first - second).norm() > 0.5 * second.norm())
