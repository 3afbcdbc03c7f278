"""An entropy bonus is added to the loss instead of subtracted."""

from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "omnisafe/algorithms/on_policy/base/ppo.py"
CASE = Case(
    repository="PKU-Alignment/omnisafe",
    fix="9e263251",
    license="Apache-2.0",
    kind="sign",
    what="the entropy has the sign of a penalty, so the policy becomes deterministic",
    paths=(FILE,),
    steps=4,
)


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.mean, self.log_std = nn.Linear(6, 2), nn.Parameter(torch.zeros(2))

    @property
    def std(self):
        return self.log_std.exp().mean().item()

    def forward(self, obs):
        self.distribution = torch.distributions.Normal(self.mean(obs), self.log_std.exp())
        return self.distribution

    def log_prob(self, act):
        return self.distribution.log_prob(act).sum(-1)


def build():
    names = definitions(FILE, ["PPO"], {
        "registry": SimpleNamespace(register=lambda cls: cls), "PolicyGradient": object,
    })  # fmt: skip
    model = Actor()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    obs, act, adv = torch.randn(16, 6), torch.randn(16, 2), torch.randn(16)
    adv = (adv - adv.mean()) / adv.std()
    with torch.no_grad():
        model(obs)
        logp = model.log_prob(act)
    agent = SimpleNamespace(
        _actor_critic=SimpleNamespace(actor=model),
        _cfgs=SimpleNamespace(algo_cfgs=SimpleNamespace(clip=0.2, entropy_coef=0.5)),
    )

    def step(number):
        optimizer.zero_grad()
        loss, info = names["PPO"]._loss_pi(agent, obs, act, logp, adv)
        loss.backward()
        optimizer.step()
        return {"loss": loss, "entropy": info["entropy"]}

    return model, step


def symptom(bug, fix):
    return bug.values[-1]["entropy"] < bug.values[0]["entropy"]
