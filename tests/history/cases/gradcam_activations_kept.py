"""Hooks keep activations with their graph until the next call."""

import torch
from torch import nn

from tests.history.case import Case, count_nodes
from tests.history.excerpt import definitions

FILE = "pytorch_grad_cam/activations_and_gradients.py"
CASE = Case(
    repository="jacobgil/pytorch-grad-cam",
    fix="137dbd1",
    license="MIT",
    kind="memory",
    what="an activation is stored without `detach`, and its graph stays alive after the step",
    paths=(FILE,),
    steps=3,
    options={"keep_steps": 3},
)


def build():
    hooks_class = definitions(FILE, ["ActivationsAndGradients"], {})["ActivationsAndGradients"]
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.Flatten(), nn.Linear(128, 5)
    )
    hooks = hooks_class(model, model[2], None)
    x = torch.randn(2, 3, 8, 8)

    def step(number):
        model.zero_grad()
        loss = hooks(x)[:, 1].sum()
        loss.backward(retain_graph=True)
        return {"loss": loss, "nodes": count_nodes(hooks.activations[0])}

    return model, step


def symptom(bug, fix):
    return bug.values[0]["nodes"] > 0
