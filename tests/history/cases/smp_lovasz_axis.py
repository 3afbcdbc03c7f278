"""The Lovász loss flattens batch and classes the wrong way round."""

import torch
from torch import nn

from tests.history.case import Case

CASE = Case(
    repository="qubvel-org/segmentation_models.pytorch",
    fix="a542c55575",
    license="MIT",
    kind="axis",
    what="`movedim(0, -1)` moves the batch instead of the classes to the end",
    paths=("segmentation_models_pytorch/losses/lovasz.py",),
)


def build():
    from tests.history.excerpt import definitions

    names = definitions(
        "segmentation_models_pytorch/losses/lovasz.py",
        ["_lovasz_grad", "_lovasz_softmax", "_lovasz_softmax_flat", "_flatten_probas", "mean"],
        {},
    )
    model = nn.Conv2d(2, 3, 3, padding=1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    images, labels = torch.randn(3, 2, 4, 4), torch.randint(3, (3, 4, 4))

    def step(number):
        optimizer.zero_grad()
        loss = names["_lovasz_softmax"](model(images).softmax(1), labels)
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return abs(bug.losses[0] - fix.losses[0]) > 1e-3
