"""Parameters of critics are frozen in a loop over an iterator that is exhausted."""

from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import statement

FILE = "spinup/algos/pytorch/sac/sac.py"
CASE = Case(
    repository="openai/spinningup",
    fix="a31a609",
    license="MIT",
    kind="frozen",
    what="`chain` yields parameters once, to the optimizer, so the loop that freezes them is empty",
    paths=(FILE,),
)


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, obs, act):
        return self.net(torch.cat([obs, act], -1)).squeeze(-1)


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(6, 4)

    def forward(self, obs):
        mean, log_std = self.net(obs).chunk(2, -1)
        distribution = torch.distributions.Normal(mean, log_std.exp())
        action = distribution.rsample()
        return action, distribution.log_prob(action).sum(-1)


def build():
    import itertools
    from copy import deepcopy

    model = nn.ModuleDict({"pi": Actor(), "q1": Critic(), "q2": Critic()})
    ac = SimpleNamespace(parameters=model.parameters, **dict(model.items()))
    target = deepcopy(model).requires_grad_(False)
    losses = []
    names = {
        "torch": torch, "itertools": itertools, "Adam": torch.optim.Adam, "lr": 1e-3, "ac": ac,
        "ac_targ": SimpleNamespace(parameters=target.parameters, **dict(target.items())),
        "gamma": 0.9, "alpha": 0.2, "polyak": 0.9,
        "logger": SimpleNamespace(store=lambda **values: losses.append(values.get("LossQ"))),
    }  # fmt: skip
    for start in ("q_params =", "def compute_loss_q", "def compute_loss_pi", "pi_optimizer =",
                  "q_optimizer =", "def update"):  # fmt: skip
        statement(FILE, start, names)
    data = {
        "obs": torch.randn(8, 6), "act": torch.randn(8, 2), "rew": torch.randn(8),
        "obs2": torch.randn(8, 6), "done": torch.zeros(8),
    }  # fmt: skip

    def step(number):
        losses.clear()
        names["update"](data)
        return {"loss": losses[0], "critic": model["q1"].net[0].weight.grad.norm()}

    return model, step


def symptom(bug, fix):
    mine, right = (run.grads[0]["q1.net.0.weight"] for run in (bug, fix))
    return bool((mine - right).norm() > 0.05 * right.norm())
