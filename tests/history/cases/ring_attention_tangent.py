"""Scores of an attention are clamped with the tangent in place of the hyperbolic tangent."""

import sys

import torch
from torch import nn

from tests.history.case import Case

PACKAGE = "ring_attention_pytorch"
FILE = f"{PACKAGE}/ring_flash_attention.py"
CASE = Case(
    repository="lucidrains/ring-attention-pytorch",
    fix="209591a",
    license="MIT",
    kind="formula",
    what="`tan` does not clamp, in the forward and in the backward of a custom function",
    paths=(FILE, f"{PACKAGE}/ring.py"),
    within={FILE: ((45, 60), (320, 360))},
    stubs={
        PACKAGE: "",
        "beartype": "beartype = lambda function: function\n",
    },
)


def build():
    from tests.history.excerpt import find

    sys.modules[PACKAGE].__path__ = [str(find(FILE).parent)]
    from ring_attention_pytorch.ring_flash_attention import ring_flash_attn

    model = nn.ModuleDict({"qkv": nn.Linear(8, 24), "out": nn.Linear(8, 3)})
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    x, y = 4 * torch.randn(2, 6, 8), torch.randn(2, 6, 3)

    def step(number):
        optimizer.zero_grad()
        q, k, v = model["qkv"](x).view(2, 6, 3, 2, 4).unbind(2)
        hidden = ring_flash_attn(
            q, k, v, causal=True, bucket_size=3, softclamp_qk_sim=True, softclamp_value=4.0
        )
        loss = nn.functional.mse_loss(model["out"](hidden.flatten(2)), y)
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    mine, right = (run.grads[0]["qkv.weight"] for run in (bug, fix))
    return bool((mine - right).norm() > 0.1 * right.norm())
