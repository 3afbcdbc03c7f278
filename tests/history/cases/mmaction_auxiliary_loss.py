"""A recognizer drops the auxiliary loss of its neck in training, and adds it in the test."""

from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "mmaction/models/recognizers/recognizer2d.py"
CASE = Case(
    repository="open-mmlab/mmaction2",
    fix="0948788857",
    license="Apache-2.0",
    kind="unused",
    what="the loss of the neck is assigned to `_`, so its head gets no gradient",
    paths=(FILE,),
    within={FILE: ((24, 26),)},
)


class Neck(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix, self.auxiliary = nn.Conv3d(4, 4, 1), nn.Linear(4, 3)

    def forward(self, x, labels):
        x = self.mix(x[0]).mean(2, keepdim=True)
        scores = self.auxiliary(x.mean((2, 3, 4)))
        return x, {"loss_aux": 0.5 * nn.functional.cross_entropy(scores, labels)}


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x, number):
        return self.linear(x.mean((2, 3)))

    def loss(self, scores, labels):
        return {"loss_cls": nn.functional.cross_entropy(scores, labels)}


def build():
    registry = SimpleNamespace(register_module=lambda: lambda cls: cls)
    names = {"BaseRecognizer": nn.Module, "RECOGNIZERS": registry}
    model = definitions(FILE, ["Recognizer2D"], names)["Recognizer2D"]()
    model.backbone, model.neck, model.cls_head = nn.Conv2d(3, 4, 3), Neck(), Head()
    model.extract_feat = lambda images: [model.backbone(images)]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    images, labels = torch.randn(4, 2, 3, 6, 6), torch.randint(3, (4, 1))

    def step(number):
        optimizer.zero_grad()
        loss = sum(model.forward_train(images, labels).values())
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return bug.missing("neck.auxiliary") and not fix.missing("neck.auxiliary")
