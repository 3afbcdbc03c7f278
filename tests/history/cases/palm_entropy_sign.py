"""An entropy bonus has the sign of a penalty."""

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "palm_rlhf_pytorch/ppo.py"
CASE = Case(
    repository="lucidrains/PaLM-rlhf-pytorch",
    fix="c816ae6c48",
    license="MIT",
    kind="formula",
    what="`prob * log(prob)` is minus the entropy",
    paths=(FILE,),
)


def build():
    names = definitions(
        FILE, ["log", "masked_entropy"], {"masked_mean": lambda values, mask: values.mean(-1)}
    )
    model = nn.Linear(8, 5)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, advantages = torch.randn(4, 6, 8), torch.randn(4, 6)

    def step(number):
        optimizer.zero_grad()
        prob = model(x).softmax(-1)
        entropy = names["masked_entropy"](prob)
        loss = -(prob[..., 0] * advantages).mean() - 0.5 * entropy
        loss.backward()
        optimizer.step()
        return {"loss": loss, "entropy": entropy}

    return model, step


def symptom(bug, fix):
    return float(bug.values[0]["entropy"]) < 0
