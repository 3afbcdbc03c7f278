"""A module adds its result in place to its input, which it needs in backward."""

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "networks/control_net_lllite.py"
CASE = Case(
    repository="kohya-ss/sd-scripts",
    fix="06461120",
    license="Apache-2.0",
    kind="in-place",
    what="`x += cx` writes to the input of the layers that computed `cx`",
    paths=(FILE,),
    within={FILE: ((155, 180),)},
)


def build():
    lllite = definitions(FILE, ["LLLiteModule"], {})["LLLiteModule"]
    base = nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 8))
    control = lllite(1, 4, "name", base[1], 6)
    control.apply_to()
    optimizer = torch.optim.AdamW(control.parameters(), lr=1e-3)
    x, target, condition = torch.randn(2, 4, 8), torch.randn(2, 4, 8), torch.randn(2, 3, 16, 16)

    def step(number):
        optimizer.zero_grad()
        control.set_cond_image(condition)
        loss = nn.functional.mse_loss(base(x), target)
        loss.backward()
        optimizer.step()
        return loss

    return control, step


def symptom(bug, fix):
    return "inplace" in bug.error
