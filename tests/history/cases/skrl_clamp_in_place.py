"""A policy clamps its actions in place, after the activation that needs them."""

from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "models/torch/deterministic.py"
CASE = Case(
    repository="Toni-SM/skrl",
    fix="277f383f",
    license="MIT",
    kind="in-place",
    what="`clamp_` overwrites the output of `tanh`, which its backward needs",
    paths=(FILE,),
)


class Space:
    low, high = (-0.5,), (0.5,)


class Model(nn.Module):
    def __init__(self, observation_space=None, action_space=None, device="cpu"):
        super().__init__()
        self.action_space, self.device = action_space, device


def build():
    names = definitions(FILE, ["DeterministicModel"], {
        "Model": Model, "gym": SimpleNamespace(Space=Space),
    })  # fmt: skip
    policy = names["DeterministicModel"](None, Space(), "cpu")
    policy.net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2), nn.Tanh())
    policy.compute = lambda states, taken_actions: policy.net(states)
    critic = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    model = nn.ModuleDict({"policy": policy, "critic": critic})
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
    states = torch.randn(8, 6)

    def step(number):
        optimizer.zero_grad()
        actions, _, _ = policy.act(states)
        loss = -critic(torch.cat([states, actions], 1)).mean()
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return "inplace operation" in bug.error
