"""The second bound of a policy loss is also used where the advantage is positive."""

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "ding/rl_utils/ppo.py"
CASE = Case(
    repository="opendilab/DI-engine",
    fix="cd401b92a",
    license="Apache-2.0",
    kind="formula",
    what="`max` with a multiple of a positive advantage is constant, so good actions have no gradient",
    paths=(FILE,),
)


def build():
    names = definitions(FILE, ["ppo_policy_error", "ppo_policy_loss", "ppo_info"], {})
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    x, action, advantage = torch.randn(16, 6), torch.randint(4, (16,)), torch.randn(16)
    old = model(x).detach()

    def step(number):
        optimizer.zero_grad()
        data = (model(x), old, action, advantage, None)
        output, _ = names["ppo_policy_error"](data, 0.2, 3.0)
        loss = output.policy_loss - 0.01 * output.entropy_loss
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    mine, right = (run.grads[0]["0.weight"] for run in (bug, fix))
    return bool((mine - right).norm() > 0.1 * right.norm())
