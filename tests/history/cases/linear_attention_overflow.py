"""Causal linear attention exponentiates its keys as they are."""

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "linear_attention_transformer/linear_attention_transformer.py"
CASE = Case(
    repository="lucidrains/linear-attention-transformer",
    fix="c6eeb1bfe7",
    license="MIT",
    kind="nan",
    what="`exp` of a large key is infinite",
    paths=(FILE,),
    options={"fingerprints": True},
)


def build():
    names = definitions(FILE, ["default", "safe_div", "split_at_index", "causal_linear_attn"], {})
    model = nn.Linear(8, 24)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(2, 16, 8) * 200

    def step(number):
        optimizer.zero_grad()
        q, k, v = (t[:, None].contiguous() for t in model(x).chunk(3, -1))
        out = names["causal_linear_attn"](q, k, v, bucket_size=4)
        loss = out.square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return bug.has_nan()
