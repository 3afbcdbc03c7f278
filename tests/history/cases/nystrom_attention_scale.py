"""Nyström attention scales its queries in place; they are a view of a split tensor."""

import torch
from torch import nn

from tests.history.case import Case

CASE = Case(
    repository="lucidrains/nystrom-attention",
    fix="80702a9494",
    license="MIT",
    kind="in-place",
    what="`q *= self.scale` writes a view that `chunk` returned",
    paths=("nystrom_attention/nystrom_attention.py",),
)


def build():
    from nystrom_attention.nystrom_attention import NystromAttention

    model = NystromAttention(dim=16, dim_head=8, heads=2, num_landmarks=4)
    optimizer = torch.optim.Adam(model.parameters())
    x, target = torch.randn(2, 16, 16), torch.randn(2, 16, 16)

    def step(number):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), target)
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return "view" in bug.error and "inplace" in bug.error
