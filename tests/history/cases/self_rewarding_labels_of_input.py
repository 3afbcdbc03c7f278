"""The labels of a prompt are masked in the tensor that is also the input."""

from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import statement

FILE = "self_rewarding_lm_pytorch/self_rewarding_lm_pytorch.py"
CASE = Case(
    repository="lucidrains/self-rewarding-lm-pytorch",
    fix="fd338cb",
    license="MIT",
    kind="in-place",
    what="`seq` and `labels` are slices of one tensor, and `masked_fill_` writes to both",
    paths=(FILE,),
    also={FILE: (320,)},
    within={FILE: ((310, 330),)},
)


def build():
    from einops import rearrange  # of the environment of the histories

    class Shape:
        def __class_getitem__(cls, names):
            return cls

    names = {"torch": torch, "F": nn.functional, "rearrange": rearrange, "TensorType": Shape,
             "Union": Shape}  # fmt: skip
    statement(FILE, "def get_cross_entropy_loss(", names)
    model = nn.Sequential(nn.Embedding(12, 8), nn.Linear(8, 12))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    trainer = SimpleNamespace(model=model, ignore_index=0)
    tokens, prompt = torch.randint(1, 12, (3, 9)), torch.arange(9).expand(3, 9) < 4

    def step(number):
        optimizer.zero_grad()
        loss = names["get_cross_entropy_loss"](trainer, tokens.clone(), prompt)
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    mine, right = (run.grads[0]["0.weight"] for run in (bug, fix))
    return bool((mine - right).norm() > 0.05 * right.norm())
