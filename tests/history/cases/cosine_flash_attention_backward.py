"""A hand-written backward of attention recomputes its weights by another formula."""

import torch
from torch import nn

from tests.history.case import Case

FILE = "memory_efficient_attention_pytorch/cosine_sim_flash_attention.py"
CASE = Case(
    repository="lucidrains/memory-efficient-attention-pytorch",
    fix="35559a0",
    license="MIT",
    kind="backward",
    what="forward subtracts the scale before `exp`, and scales the queries that it saves",
    paths=(FILE,),
    options={"verify": True},
)


def build():
    from memory_efficient_attention_pytorch.cosine_sim_flash_attention import (
        FlashAttentionFunction,
    )

    model = nn.Linear(8, 24)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, target = torch.randn(2, 8, 8), torch.randn(2, 1, 8, 8)

    def step(number):
        optimizer.zero_grad()
        q, k, v = (t[:, None] for t in model(x).chunk(3, -1))
        q, k = nn.functional.normalize(q, dim=-1), nn.functional.normalize(k, dim=-1)
        out = FlashAttentionFunction.apply(q, k, v, None, 4, False, 4, 4)
        loss = nn.functional.mse_loss(out, target)
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    close = abs(bug.losses[0] - fix.losses[0]) < 1e-5
    return close and bug.norm() > 1.5 * fix.norm()
