"""A loss for actions out of bounds is active within the bounds."""

from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "rl_games/algos_torch/a2c_continuous.py"
CASE = Case(
    repository="Denys88/rl_games",
    fix="5ebb655",
    license="MIT",
    kind="formula",
    what="`clamp_max` keeps the distance to the bound where the action is within it",
    paths=(FILE,),
)


def build():
    agent = definitions(FILE, ["A2CAgent"], {
        "a2c_common": SimpleNamespace(ContinuousA2CBase=object), "print": lambda *values: None,
    })["A2CAgent"]  # fmt: skip
    model = nn.Linear(6, 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    x, action = torch.randn(16, 6), torch.randn(16, 2)
    advantage = torch.randn(16)
    settings = SimpleNamespace(bounds_loss_coef=0.1)

    def step(number):
        optimizer.zero_grad()
        mu = model(x)
        log_prob = torch.distributions.Normal(mu, 1.0).log_prob(action).sum(-1)
        actor_loss = -(log_prob * advantage).mean()
        bound_loss = agent.bound_loss(settings, mu).mean()
        loss = actor_loss + settings.bounds_loss_coef * bound_loss
        loss.backward()
        optimizer.step()
        return {"loss": loss, "bound": bound_loss, "outside": (mu > 1.1).any(-1).float().mean()}

    return model, step


def symptom(bug, fix):
    mine, right = (run.grads[0]["weight"] for run in (bug, fix))
    return bool((mine - right).norm() > 0.1 * right.norm())
