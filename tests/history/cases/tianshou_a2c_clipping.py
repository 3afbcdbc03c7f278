"""A2C clips the parameters of a model that is None."""

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "tianshou/policy/modelfree/a2c.py"
CASE = Case(
    repository="thu-ml/tianshou",
    fix="04b091d975",
    license="MIT",
    kind="clipping",
    what="`self.model` is None; actor and critic are what the gradients belong to",
    paths=(FILE,),
)


class Base(nn.Module):
    def __init__(self, model, optim, dist_fn, discount_factor):
        super().__init__()
        self.model, self.optim, self.dist_fn = model, optim, dist_fn


class Batch:
    def __init__(self, **values):
        self.__dict__.update(values, info=None)

    def split(self, size):
        yield self


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(4, 2)

    def forward(self, obs, state, info):
        return self.out(obs).softmax(-1), state


def build():
    names = definitions(FILE, ["A2CPolicy"], {"PGPolicy": Base, "Batch": Batch})
    actor, critic = Actor(), nn.Linear(4, 1)
    optimizer = torch.optim.Adam([*actor.parameters(), *critic.parameters()])
    policy = names["A2CPolicy"](
        actor, critic, optimizer, torch.distributions.Categorical, max_grad_norm=0.5
    )
    batch = Batch(obs=torch.randn(8, 4), act=[0, 1] * 4, returns=[10.0] * 8)

    def step(number):
        return {"loss": policy.learn(batch)["loss"][0]}

    return policy, step


def symptom(bug, fix):
    return "has no attribute 'parameters'" in bug.error
