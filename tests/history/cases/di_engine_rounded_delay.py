"""A head predicts a number and rounds it before the loss."""

import math
from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "sc2learner/agents/model/alphastar/head/action_arg_head.py"
CASE = Case(
    repository="opendilab/DI-engine",
    fix="4e0d12ec9",
    license="Apache-2.0",
    kind="no gradient",
    what="the derivative of `round` is zero, so the layers before it do not learn",
    paths=(FILE,),
)


def binary_encode(number, largest):
    bits = int(math.log2(largest + 1))
    return (number.detach().long()[:, None] >> torch.arange(bits) & 1).float()


def build():
    names = definitions(FILE, ["DelayHead"], {
        "math": math, "nn": nn, "torch": torch, "binary_encode": binary_encode,
        "build_activation": lambda name: nn.ReLU(),
        "fc_block": lambda a, b, activation, norm_type: nn.Sequential(nn.Linear(a, b), activation),
    })  # fmt: skip
    model = names["DelayHead"](SimpleNamespace(
        activation="relu", input_dim=8, decode_dim=16, delay_encode_dim=5, delay_map_dim=16,
    ))  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    embedding, target = torch.randn(8, 8), torch.randint(32, (8,)).float()

    def step(number):
        optimizer.zero_grad()
        delay, _, following = model(embedding)
        loss = nn.functional.mse_loss(delay, target) + following.square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return bug.missing("fc1")
