"""The backward pass of sparsemax squeezes all dimensions."""

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "entmax/activations.py"
CASE = Case(
    repository="deep-spin/entmax",
    fix="4f3bc08316",
    license="MIT",
    kind="broadcast",
    what="`squeeze()` drops other dimensions of size 1, and the division broadcasts",
    paths=(FILE,),
)


def build():
    names = definitions(
        FILE,
        ["_make_ix_like", "_roll_last", "_sparsemax_threshold_and_support", "SparsemaxFunction"],
        {},
    )
    sparsemax = names["SparsemaxFunction"].apply
    model = nn.ModuleDict({"query": nn.Linear(6, 6), "key": nn.Linear(6, 6)})
    queries, keys, values = torch.randn(4, 1, 6), torch.randn(4, 5, 6), torch.randn(4, 5, 3)
    target = torch.randn(4, 1, 3)

    def step(number):
        scores = model["query"](queries) @ model["key"](keys).transpose(1, 2)
        loss = (sparsemax(scores, -1) @ values - target).square().mean()
        loss.backward()
        return loss

    return model, step


def symptom(bug, fix):
    return bool(bug.error) or abs(bug.norm() / fix.norm() - 1.0) > 0.05
