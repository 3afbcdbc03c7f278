"""Attention in chunks subtracts the maximum of scores that are masked afterwards."""

import torch
from torch import nn

from tests.history.case import Case

CASE = Case(
    repository="lucidrains/memory-efficient-attention-pytorch",
    fix="9ecb55a2c9",
    license="MIT",
    kind="nan",
    what="if a masked score is the largest by far, all other weights underflow to zero",
    paths=("memory_efficient_attention_pytorch/memory_efficient_attention.py",),
    within={"memory_efficient_attention_pytorch/memory_efficient_attention.py": ((50, 80),)},
    also={"memory_efficient_attention_pytorch/memory_efficient_attention.py": (70,)},
    options={"fingerprints": True},
)


def build():
    from memory_efficient_attention_pytorch.memory_efficient_attention import (
        memory_efficient_attention,
    )

    model = nn.Linear(8, 24)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(2, 8, 8)
    bias = torch.zeros(1, 1, 8, 8)
    bias[..., -1] = 200.0  # the padded position, which is masked
    mask = torch.arange(8).expand(2, 8) < 7

    def step(number):
        optimizer.zero_grad()
        q, k, v = (t[:, None] for t in model(x).chunk(3, -1))
        out = memory_efficient_attention(
            q, k, v, mask=mask, attn_bias=bias, q_bucket_size=4, k_bucket_size=8
        )
        loss = (out - 1).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return bug.norm() < 1e-6 or bug.has_nan()
