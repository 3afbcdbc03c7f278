"""The log-probability of SAC's actions is not summed over their dimensions."""

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "tianshou/policy/modelfree/sac.py"
CASE = Case(
    repository="thu-ml/tianshou",
    fix="8f718d9b13",
    license="MIT",
    kind="broadcast",
    what="log-probabilities [n, k] meet values [n, 1] in the target and in the actor loss",
    paths=(FILE,),
)


class Base(nn.Module):
    def __init__(self, actor, ao, critic, co, tau, gamma, noise, action_range, *rest):
        super().__init__()
        self._tau, self._gamma, self._range = tau, gamma, action_range
        self._action_bias = (action_range[0] + action_range[1]) / 2
        self._action_scale = (action_range[1] - action_range[0]) / 2


class Batch:
    def __init__(self, **values):
        self.__dict__.update(values)


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.mean, self.std = nn.Linear(4, 3), nn.Linear(4, 3)

    def forward(self, obs, state=None, info=None):
        return (self.mean(obs), self.std(obs).clamp(-2, 2).exp()), state


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(7, 1)

    def forward(self, obs, act):
        return self.out(torch.cat([obs, act], 1))


def build():
    names = definitions(FILE, ["SACPolicy"], {"DDPGPolicy": Base, "Batch": Batch})
    actor, first, second = Actor(), Critic(), Critic()
    policy = names["SACPolicy"](
        actor, torch.optim.Adam(actor.parameters()), first, torch.optim.Adam(first.parameters()),
        second, torch.optim.Adam(second.parameters()), action_range=(-1.0, 1.0),
    )  # fmt: skip
    batch = Batch(
        obs=torch.randn(8, 4), obs_next=torch.randn(8, 4), info=None,
        act=[[0.1, 0.2, 0.3]] * 8, rew=[1.0] * 8, done=[0.0] * 8,
    )  # fmt: skip

    def step(number):
        return {"loss": policy.learn(batch)["loss/actor"]}

    return policy, step


def symptom(bug, fix):
    return abs(bug.norm("actor") - fix.norm("actor")) > 1e-3
