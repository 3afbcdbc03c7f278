"""The policy loss of an actor-critic also trains the critic, through the advantage."""

from types import SimpleNamespace

import torch
from torch import nn
from torch.autograd import Variable

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "train.py"
CASE = Case(
    repository="Kaixhin/ACER",
    fix="aa0a692",
    license="MIT",
    kind="detach",
    what="the advantage is not detached, so the critic learns to please the policy",
    paths=(FILE,),
)


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor, self.critic = nn.Linear(6, 3), nn.Linear(6, 3)

    def forward(self, x):
        policy, q = self.actor(x).softmax(1), self.critic(x)
        return policy, q, (policy.detach() * q).sum(1, keepdim=True)


def build():
    model = ActorCritic()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    losses = []

    def update(args, T, model, shared_model, shared_average_model, loss, optimiser):
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.detach())

    train = definitions(FILE, ["_train"], {
        "_update_networks": update, "torch": torch, "Variable": Variable,
    })["_train"]  # fmt: skip
    args = SimpleNamespace(discount=0.9, trace_max=10.0, trust_region=False, entropy_weight=0.01)
    states, rewards = torch.randn(3, 4, 6), list(torch.randn(3, 4, 1))
    actions = list(torch.randint(3, (3, 4, 1)))
    old_policies = [torch.randn(4, 3).softmax(1) for _ in range(3)]

    def step(number):
        policies, qs, vs = zip(*map(model, states))
        train(args, None, model, None, None, optimizer, policies, qs, vs, actions, rewards,
              vs[-1].detach(), None, old_policies)  # fmt: skip
        return losses[-1].mean()

    return model, step


def symptom(bug, fix):
    mine, right = (run.grads[0]["critic.weight"] for run in (bug, fix))
    return bool((mine - right).norm() > 0.1 * right.norm())
