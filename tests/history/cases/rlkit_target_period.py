"""The steps of training are not counted, so a target network is updated in each of them."""

from types import SimpleNamespace

import numpy as np
import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "rlkit/torch/dqn/dqn.py"
CASE = Case(
    repository="vitchyr/rlkit",
    fix="e8ce6f5",
    license="MIT",
    kind="state",
    what="`_n_train_steps_total` stays 0, and the target network follows in every step",
    paths=(FILE,),
    also={FILE: (73,)},
    steps=3,
    options={"keep_steps": 3},
)


def soft_update(source, target, tau):
    for mine, theirs in zip(target.parameters(), source.parameters()):
        mine.data.copy_(mine.data * (1.0 - tau) + theirs.data * tau)


def build():
    trainer_class = definitions(FILE, ["DQNTrainer"], {
        "np": np, "TorchTrainer": object, "create_stats_ordered_dict": lambda *values: {},
        "ptu": SimpleNamespace(
            soft_update_from_to=soft_update, get_numpy=lambda tensor: tensor.detach().numpy()
        ),
    })["DQNTrainer"]  # fmt: skip
    models = nn.ModuleDict({name: nn.Linear(4, 3) for name in ("qf", "target_qf")})
    trainer = trainer_class(
        models["qf"], models["target_qf"], target_update_period=4, soft_target_tau=0.5
    )
    batch = {
        "rewards": torch.randn(8, 1), "terminals": torch.zeros(8, 1),
        "observations": torch.randn(8, 4), "actions": torch.eye(3)[torch.arange(8) % 3],
        "next_observations": torch.randn(8, 4),
    }  # fmt: skip

    def step(number):
        before = models["target_qf"].weight.clone()
        trainer.train_from_torch(batch)
        with torch.no_grad():
            prediction = (models["qf"](batch["observations"]) * batch["actions"]).sum(1)
        moved = (models["target_qf"].weight - before).detach().abs().max()
        return {"loss": prediction.square().mean(), "moved": moved}

    return models, step


def symptom(bug, fix):
    return bool(bug.values[1]["moved"] > 0)
