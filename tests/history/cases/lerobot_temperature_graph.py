"""The temperature of a policy is kept with its graph, which the next loss uses again."""

from types import MethodType

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import statement

FILE = "src/lerobot/policies/sac/modeling_sac.py"
CASE = Case(
    repository="huggingface/lerobot",
    fix="c1d591ecd",
    license="Apache-2.0",
    kind="backward",
    what="the exponential of a parameter is computed once for two losses and is not detached",
    paths=(FILE,),
)


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor, self.critic = nn.Linear(6, 4), nn.Linear(8, 1)
        self.log_alpha = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        mean, log_std = self.actor(x).chunk(2, -1)
        distribution = torch.distributions.Normal(mean, log_std.exp())
        action = distribution.rsample()
        return action, distribution.log_prob(action).sum(-1, keepdim=True)


def build():
    names = {}
    statement(FILE, "def update_temperature(", names)
    model = Policy()
    model.update_temperature = MethodType(names["update_temperature"], model)
    model.update_temperature()
    optimizers = [torch.optim.Adam(part, lr=1e-3) for part in
                  (model.critic.parameters(), model.actor.parameters(), [model.log_alpha])]  # fmt: skip
    x, following, reward = torch.randn(8, 6), torch.randn(8, 6), torch.randn(8, 1)
    taken = torch.randn(8, 2)

    def update(number, loss):
        optimizers[number].zero_grad()
        loss.backward()
        optimizers[number].step()

    def step(number):
        with torch.no_grad():
            action, log_prob = model(following)
            value = model.critic(torch.cat([following, action], -1))
        target = reward + 0.9 * (value - model.temperature * log_prob)
        loss = nn.functional.mse_loss(model.critic(torch.cat([x, taken], -1)), target)
        update(0, loss)
        action, log_prob = model(x)
        value = model.critic(torch.cat([x, action], -1))
        update(1, (model.temperature * log_prob - value).mean())
        update(2, (-model.log_alpha.exp() * (log_prob.detach() - 2.0)).mean())
        model.update_temperature()
        return loss

    return model, step


def symptom(bug, fix):
    return "second time" in bug.error
