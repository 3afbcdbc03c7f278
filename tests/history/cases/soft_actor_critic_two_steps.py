"""The optimizer of two critics takes a step between their backward calls."""

from types import SimpleNamespace

import numpy as np
from torch import nn

from tests.history.case import Case

FILE = "sac.py"
CASE = Case(
    repository="pranz24/pytorch-soft-actor-critic",
    fix="e961172",
    license="MIT",
    kind="in-place",
    what="the step for the first loss writes to weights that the policy loss needs",
    paths=(FILE, "model.py", "utils.py"),
)


def build():
    from sac import SAC

    args = SimpleNamespace(
        gamma=0.99, tau=0.005, alpha=0.2, policy="Gaussian", target_update_interval=1,
        automatic_entropy_tuning=False, cuda=False, hidden_size=16, lr=3e-4,
    )  # fmt: skip
    space = SimpleNamespace(shape=(2,), high=np.ones(2), low=-np.ones(2))
    agent = SAC(4, space, args)
    noise = np.random.default_rng(0)
    batch = tuple(noise.standard_normal(shape).astype("float32")
                  for shape in ((8, 4), (8, 2), (8,), (8, 4), (8,)))  # fmt: skip
    memory = SimpleNamespace(sample=lambda batch_size: batch)

    def step(number):
        return agent.update_parameters(memory, 8, number)[2]

    return nn.ModuleDict({"critic": agent.critic, "policy": agent.policy}), step


def symptom(bug, fix):
    return "inplace" in bug.error
