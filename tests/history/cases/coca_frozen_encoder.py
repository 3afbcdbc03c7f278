"""The image encoder of a captioner is frozen, and ought to be trained."""

import torch
from torch import nn

from tests.history.case import Case

FILE = "coca_pytorch/coca_pytorch.py"
CASE = Case(
    repository="lucidrains/CoCa-pytorch",
    fix="4a6dbccb9b",
    license="MIT",
    kind="frozen",
    what="the encoder does not require gradients, runs with `torch.no_grad`, and is detached",
    paths=(FILE,),
)


def build():
    from coca_pytorch.coca_pytorch import CoCa

    encoder = nn.Sequential(nn.Conv2d(3, 12, 4, stride=4), nn.Flatten(2), nn.Linear(16, 16))
    model = CoCa(
        dim=16, num_tokens=20, unimodal_depth=1, multimodal_depth=1, num_img_queries=4,
        image_dim=16, dim_head=8, heads=2, img_encoder=encoder,
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    text, images = torch.randint(1, 20, (2, 8)), torch.randn(2, 3, 16, 16)

    def step(number):
        optimizer.zero_grad()
        loss = model(text=text, images=images, return_loss=True)
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return bug.missing("img_encoder") and not fix.missing("img_encoder")
