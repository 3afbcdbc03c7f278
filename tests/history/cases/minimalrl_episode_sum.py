"""The loss of an episode is a sum, so long episodes have large gradients."""

import torch

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "actor_critic.py"
CASE = Case(
    repository="seungeunrho/minimalRL",
    fix="2e1f637",
    license="MIT",
    kind="scale",
    what="the sum over the steps of an episode is not divided by their number",
    paths=(FILE,),
)


def build():
    names = definitions(FILE, ["ActorCritic"], {})
    model = names["ActorCritic"]()
    observations = torch.randn(21, 4)

    def step(number):
        for t in range(20):
            pi, v = model(observations[t])
            _, next_v = model(observations[t + 1])
            delta = 1.0 + 0.99 * next_v - v
            model.gather_loss(-torch.log(pi[0]) * delta.item() + delta * delta)
        model.train()
        return {"loss": 0.0}

    return model, step


def symptom(bug, fix):
    return bug.norm() > 10 * fix.norm()
