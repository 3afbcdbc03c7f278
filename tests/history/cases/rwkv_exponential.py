"""The keys of a recurrent attention are exponentiated as they are."""

from types import SimpleNamespace

import torch

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "src/model.py"
CASE = Case(
    repository="BlinkDL/RWKV-LM",
    fix="ef29f4b9e8",
    license="BSD-2-Clause",
    kind="nan",
    what="`exp(k)` of large keys is infinite, and the weighted mean divides it by its sum",
    paths=(FILE,),
    within={FILE: ((53, 54),)},
)


def build():
    config = SimpleNamespace(n_embd=8, n_head=2, ctx_len=6)
    model = definitions(FILE, ["RWKV_TimeMix"], {})["RWKV_TimeMix"](config, 0)
    x, target = torch.randn(2, 6, 8), torch.randn(2, 6, 8)
    x[0, 3] *= 200.0

    def step(number):
        loss = (model(x) - target).square().mean()
        loss.backward()
        return loss

    return model, step


def symptom(bug, fix):
    return bug.has_nan()
