"""Boxes are clipped in place after a loss used them."""

import torch
from torch import nn

from tests.history.case import Case

CASE = Case(
    repository="facebookresearch/detectron2",
    fix="2f87ffee96",
    license="Apache-2.0",
    kind="in-place",
    what="`clamp_` writes columns of a tensor that backward needs",
    paths=("detectron2/structures/boxes.py", "detectron2/utils/env.py"),
    stubs={"detectron2": "", "detectron2.utils": "",
           "detectron2.utils.env": "TORCH_VERSION = (2, 13)"},
    within={"detectron2/structures/boxes.py": ((200, 212),)},
)  # fmt: skip


def build():
    from tests.history.excerpt import definitions

    names = definitions(
        "detectron2/structures/boxes.py", ["Boxes"], {"_maybe_jit_unused": lambda f: f}
    )
    model = nn.Linear(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    features, size = torch.randn(6, 8), torch.tensor([0.0, 0.0, 30.0, 30.0])
    truth = torch.tensor([[1.0, 1.0, 31.0, 31.0]]).expand(6, 4)

    def step(number):
        optimizer.zero_grad()
        boxes = names["Boxes"](model(features) * 5 + size)
        # The inner box of prediction and truth, as in a loss on the overlap.
        low = torch.max(boxes.tensor[:, :2], truth[:, :2])
        high = torch.min(boxes.tensor[:, 2:], truth[:, 2:])
        loss = (1 - (high - low).clamp(min=0).prod(1) / 900).mean()
        boxes.clip((32, 32))  # what the next stage gets
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return "modified by an inplace operation" in bug.error
