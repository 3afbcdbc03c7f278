"""A triangular update divides by the standard deviation of a masked projection."""

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "openfold/model/triangular_multiplicative_update.py"
CASE = Case(
    repository="aqlaboratory/openfold",
    fix="c52d262c83",
    license="Apache-2.0",
    kind="nan",
    what="where everything is masked, the standard deviation is zero",
    paths=(FILE,),
)


class Linear(nn.Linear):
    def __init__(self, size, out, init=None):
        super().__init__(size, out)


def permute(x, order):
    start = x.dim() - len(order)
    return x.permute(*range(start), *(start + n for n in order))


def build():
    names = definitions(
        FILE,
        ["TriangleMultiplicativeUpdate"],
        {"Linear": Linear, "LayerNorm": nn.LayerNorm, "permute_final_dims": permute,
         "is_fp16_enabled": lambda: False, "add": torch.add, "chunk_layer": None},
    )  # fmt: skip
    model = names["TriangleMultiplicativeUpdate"](6, 4)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    z, y, mask = torch.randn(1, 5, 5, 6), torch.randn(1, 5, 5, 6), torch.zeros(1, 5, 5)

    def step(number):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(z + model(z, mask=mask), y)
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return bug.has_nan()
