"""Dropout overwrites the activation that the backward pass needs."""

from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "sockeye/transformer_pt.py"
CASE = Case(
    repository="awslabs/sockeye",
    fix="006f01b11b",
    license="Apache-2.0",
    kind="in-place",
    what="`Dropout(inplace=True)` follows an activation that saves its result",
    paths=(FILE,),
    also={FILE: (323,)},
)


def build():
    layers = SimpleNamespace(pytorch_get_activation=lambda kind, inplace: nn.ReLU(inplace))
    names = definitions(
        FILE,
        ["PyTorchTransformerFeedForward"],
        {"pt": torch, "sockeye": SimpleNamespace(layers_pt=layers)},
    )
    model = names["PyTorchTransformerFeedForward"](8, 4, "relu", dropout=0.2)
    x, target = torch.randn(2, 5, 4), torch.randn(2, 5, 4)

    def step(number):
        loss = (model(x) - target).square().mean()
        loss.backward()
        return loss

    return model, step


def symptom(bug, fix):
    return "inplace" in bug.error
