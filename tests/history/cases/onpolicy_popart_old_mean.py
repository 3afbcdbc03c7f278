"""A normalized value head keeps no copy of its old statistics, which it updates in place."""

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "onpolicy/algorithms/utils/popart.py"
CASE = Case(
    repository="marlbenchmark/on-policy",
    fix="c49b471",
    license="MIT",
    kind="in-place",
    what="`old_mean` is the tensor of the new mean, so the bias is not corrected for the change",
    paths=(FILE,),
    also={FILE: (59,)},
)


def build():
    popart_class = definitions(FILE, ["PopArt"], {})["PopArt"]
    torch.set_default_dtype(torch.float64)  # so that its statistics are copied by `to`
    try:
        head = popart_class(8, 1, beta=0.9)
    finally:
        torch.set_default_dtype(torch.float32)
    body = nn.Sequential(nn.Linear(4, 8), nn.Tanh())
    optimizer = torch.optim.Adam(body.parameters(), lr=1e-3)
    x, returns = torch.randn(16, 4), torch.randn(16, 1) + 5

    def step(number):
        optimizer.zero_grad()
        hidden = body(x)
        with torch.no_grad():
            before = head(hidden) * head.stddev + head.mean
        head.update(returns)
        with torch.no_grad():
            drift = (head(hidden) * head.stddev + head.mean - before).abs().max()
        loss = nn.functional.mse_loss(head(hidden), head.normalize(returns))
        loss.backward()
        optimizer.step()
        return {"loss": loss, "drift": drift}

    return body, step


def symptom(bug, fix):
    return bool(bug.values[0]["drift"] > 0.1)
