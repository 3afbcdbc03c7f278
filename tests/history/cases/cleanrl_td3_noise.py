"""All actions of a batch get the same smoothing noise."""

from types import SimpleNamespace

import numpy as np
import torch
from torch import nn, optim

from tests.history.case import Case
from tests.history.excerpt import definitions, statement

FILE = "cleanrl/td3_continuous_action.py"
CASE = Case(
    repository="vwxyzjn/cleanrl",
    fix="331cb390a9",
    license="MIT",
    kind="broadcast",
    what="noise of the shape of one action is broadcast over the batch",
    paths=(FILE,),
)


def build():
    space = SimpleNamespace(shape=(2,), high=np.ones(2), low=-np.ones(2))
    env = SimpleNamespace(
        single_observation_space=SimpleNamespace(shape=(3,)), single_action_space=space,
        action_space=space,
    )  # fmt: skip
    names = definitions(FILE, ["QNetwork", "Actor"], {})
    models = {"actor": names["Actor"](env), "target_actor": names["Actor"](env)}
    for name in ("qf1", "qf2", "qf1_target", "qf2_target"):
        models[name] = names["QNetwork"](env)
    seen = []
    models["qf1_target"].register_forward_pre_hook(lambda _, inputs: seen.append(inputs[1].clone()))
    batch = SimpleNamespace(
        observations=torch.randn(8, 3), next_observations=torch.randn(1, 3).expand(8, 3).clone(),
        actions=torch.randn(8, 2), rewards=torch.randn(8, 1), dones=torch.zeros(8, 1),
    )  # fmt: skip
    names.update(
        models, device="cpu", actions=np.zeros((1, 2)), envs=env,
        rb=SimpleNamespace(sample=lambda size: batch),
        args=SimpleNamespace(
            learning_starts=0, batch_size=8, gamma=0.99, policy_frequency=2, policy_noise=0.2,
            noise_clip=0.5, tau=0.005,
        ),
        writer=SimpleNamespace(add_scalar=lambda *a: None),
        q_optimizer=optim.Adam([*models["qf1"].parameters(), *models["qf2"].parameters()]),
        actor_optimizer=optim.Adam(models["actor"].parameters()),
    )  # fmt: skip

    def step(number):
        names["global_step"] = number + 1
        statement(FILE, "if global_step > args.learning_starts:", names)
        return {"loss": names["qf_loss"], "actions": seen[0]}

    return nn.ModuleDict(models), step


def symptom(bug, fix):
    actions = bug.values[0]["actions"]
    return bool((actions == actions[0]).all())
