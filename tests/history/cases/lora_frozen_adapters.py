"""A function that marks adapters as trainable leaves frozen ones frozen."""

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE, LAYERS = "loralib/utils.py", "loralib/layers.py"
CASE = Case(
    repository="microsoft/LoRA",
    fix="ec27421",
    license="MIT",
    kind="requires_grad",
    what="adapters of a model that was frozen as a whole get no gradient",
    paths=(FILE, LAYERS),
    steps=2,
)


def build():
    layers = definitions(LAYERS, ["LoRALayer", "Linear"], {"nn": nn, "torch": torch})
    names = {"LoRALayer": layers["LoRALayer"], "nn": nn, "torch": torch}
    mark = definitions(FILE, ["mark_only_lora_as_trainable"], names)["mark_only_lora_as_trainable"]
    body = nn.Sequential(layers["Linear"](6, 8, r=2), nn.Tanh(), layers["Linear"](8, 8, r=2))
    body.requires_grad_(False)  # pretrained weights, before adapters are chosen
    mark(body)
    model = nn.Sequential(body, nn.Linear(8, 3))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    x, y = torch.randn(16, 6), torch.randint(3, (16,))

    def step(number):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return bug.missing("0.")
