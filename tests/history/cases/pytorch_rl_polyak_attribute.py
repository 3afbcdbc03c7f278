"""The average of a target network is assigned to an attribute of a tensor."""

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "train_ddpg.py"
CASE = Case(
    repository="navneet-nmk/pytorch-rl",
    fix="db5a20f",
    license="NONE",
    kind="ema",
    what="`target_param.data.copy = ...` writes no value, and the target network never moves",
    paths=(FILE,),
    within={FILE: ((90, 110),)},
    steps=3,
    options={"keep_steps": 3},
)


def build():
    polyak_update = definitions(FILE, ["polyak_update"], {"torch": torch})["polyak_update"]
    models = nn.ModuleDict({name: nn.Linear(6, 1) for name in ("critic", "target")})
    models["target"].load_state_dict(models["critic"].state_dict())
    models["target"].requires_grad_(requires_grad=False)
    optimizer = torch.optim.Adam(models["critic"].parameters(), lr=0.01)
    x, following, reward = torch.randn(8, 6), torch.randn(8, 6), torch.randn(8, 1)
    start = models["target"].weight.clone()

    def step(number):
        target = reward + 0.9 * models["target"](following)
        optimizer.zero_grad()
        loss = nn.functional.smooth_l1_loss(models["critic"](x), target)
        loss.backward()
        optimizer.step()
        polyak_update(0.1, models["target"], models["critic"])
        return {"loss": loss, "moved": (models["target"].weight - start).abs().max()}

    return models, step


def symptom(bug, fix):
    return bool(bug.values[-1]["moved"] == 0)
