"""Scores that a later layer adds are masked in place after they were stored."""

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "x_transformers/x_transformers.py"
CASE = Case(
    repository="lucidrains/x-transformers",
    fix="746aebe",
    license="MIT",
    kind="in-place",
    what="`pre_softmax_attn` is the tensor that `masked_fill_` overwrites",
    paths=(FILE,),
    also={FILE: (442,)},
)


def build():
    names = definitions(FILE, [
        "exists", "default", "max_neg_value", "DEFAULT_DIM_HEAD", "Intermediates", "Attention",
    ], {"entmax15": None})  # fmt: skip
    model = nn.ModuleDict({
        "first": names["Attention"](8, dim_head=4, heads=2, sparse_topk=2),
        "second": names["Attention"](8, dim_head=4, heads=2), "out": nn.Linear(8, 3),
    })  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    x, y = torch.randn(2, 6, 8), torch.randn(2, 6, 3)

    def step(number):
        optimizer.zero_grad()
        first, stored = model["first"](x)
        second, _ = model["second"](x + first, prev_attn=stored.pre_softmax_attn)
        loss = nn.functional.mse_loss(model["out"](second), y)
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    mine, right = (run.grads[0]["second.to_q.weight"] for run in (bug, fix))
    return bool((mine - right).norm() > 0.05 * right.norm())
