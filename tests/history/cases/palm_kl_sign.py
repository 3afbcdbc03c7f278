"""A divergence has the wrong sign, so a penalty becomes a reward."""

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "palm_rlhf_pytorch/ppo.py"
CASE = Case(
    repository="lucidrains/PaLM-rlhf-pytorch",
    fix="2bb47d4373",
    license="MIT",
    kind="formula",
    what="`log(prob2) - log(prob1)` is minus the divergence",
    paths=(FILE,),
)


def build():
    names = definitions(FILE, ["log", "exists", "masked_kl_div"], {})
    model = nn.Linear(8, 5)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(4, 6, 8)
    old = torch.randn(4, 6, 5).softmax(-1)

    def step(number):
        optimizer.zero_grad()
        loss = names["masked_kl_div"](old, model(x).softmax(-1))
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return bug.losses[0] < 0
