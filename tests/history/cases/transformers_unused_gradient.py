"""An FP16 script unscales the gradient of a parameter that has none."""

from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import statement

FILE = "examples/run_classifier.py"
CASE = Case(
    repository="huggingface/pytorch-pretrained-BERT",
    fix="2f21497d3e",
    license="Apache-2.0",
    kind="no gradient",
    what="`param.grad` is None for the pooler, which took no part in the loss",
    paths=(FILE,),
)


def build():
    model = nn.ModuleDict({"encoder": nn.Linear(4, 3), "pooler": nn.Linear(3, 3)})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    names = {"model": model, "args": SimpleNamespace(loss_scale=128.0)}
    x, y = torch.randn(8, 4), torch.randint(3, (8,))

    def step(number):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model["encoder"](x), y)
        (loss * 128.0).backward()
        statement(FILE, "for param in model.parameters():", names)
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return "NoneType" in bug.error
