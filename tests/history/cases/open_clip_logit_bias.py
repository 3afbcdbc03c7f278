"""A contrastive loss does not pass the bias on."""

import math

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "src/open_clip/loss.py"
CASE = Case(
    repository="mlfoundations/open_clip",
    fix="204d53e768",
    license="MIT",
    kind="unused",
    what="`forward` takes `logit_bias` and never uses it, so that the parameter has no gradient",
    paths=(FILE,),
)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.image, self.text = nn.Linear(6, 8), nn.Linear(5, 8)
        self.logit_scale = nn.Parameter(torch.tensor(math.log(10.0)))
        self.logit_bias = nn.Parameter(torch.tensor(-10.0))

    def forward(self, image, text):
        return {
            "image_features": nn.functional.normalize(self.image(image), dim=-1),
            "text_features": nn.functional.normalize(self.text(text), dim=-1),
            "logit_scale": self.logit_scale.exp(),
            "logit_bias": self.logit_bias,
        }


def build():
    names = definitions(FILE, ["ClipLoss"], {})
    model, criterion = Model(), names["ClipLoss"]()
    image, text = torch.randn(4, 6), torch.randn(4, 5)

    def step(number):
        loss = criterion(**model(image, text))
        loss.backward()
        return loss

    return model, step


def symptom(bug, fix):
    return "logit_bias" not in bug.grads[-1]
