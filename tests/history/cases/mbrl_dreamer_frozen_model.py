"""An agent that learns in the imagination of a world model gives gradients to the world model."""

from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions, statement

FILE = "mbrl/planning/dreamer_agent.py"
CASE = Case(
    repository="facebookresearch/mbrl-lib",
    fix="68d55f547e",
    license="MIT",
    kind="frozen",
    what="the world model is not frozen while the policy is trained",
    paths=(FILE,),
    also={FILE: (180, 197, 238)},
)


class World(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.move = nn.Linear(4, 6), nn.Linear(8, 6)
        self.reward = nn.Linear(6, 1)

    def _process_batch(self, batch, pixel_obs):
        return batch

    def forward(self, obs, actions, rewards):
        belief, latent = torch.tanh(self.encoder(obs)).chunk(2, -1)
        return None, None, None, latent, belief, None, rewards

    def sample(self, actions, states):
        state = torch.cat([states["belief"], states["latent"], actions], -1)
        belief, latent = torch.tanh(self.move(state)).chunk(2, -1)
        rewards = self.reward(torch.cat([belief, latent], -1)).squeeze(-1)
        return None, rewards, None, {"belief": belief, "latent": latent}


class Head(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.net = nn.Linear(6, size)

    def forward(self, belief, latent):
        return self.net(torch.cat([belief, latent], -1)).squeeze(-1)


def build():
    names = {"torch": torch, "nn": nn, "F": nn.functional}
    definitions(FILE, ["freeze", "unfreeze"], names)
    names["tqdm"] = SimpleNamespace(tqdm=lambda data, disable: data)
    statement(FILE, "def train(", names)
    statement(FILE, "def _compute_return(", names)
    model = nn.ModuleDict({"world": World(), "policy": Head(2), "critic": Head(1)})
    agent = SimpleNamespace(
        planet_model=model["world"], policy=model["policy"], critic=model["critic"], horizon=4,
        act=lambda states: torch.tanh(model["policy"](states["belief"], states["latent"])),
        device="cpu", gamma=0.99, lam=0.95, grad_clip_norm=100.0,
        policy_optim=torch.optim.Adam(model["policy"].parameters(), lr=1e-3),
        critic_optim=torch.optim.Adam(model["critic"].parameters(), lr=1e-3),
        parameters=lambda: [*model["policy"].parameters(), *model["critic"].parameters()],
        _compute_return=lambda *a, **k: names["_compute_return"](agent, *a, **k),
    )  # fmt: skip
    batches = [(torch.randn(2, 5, 4), torch.randn(2, 5, 2), torch.randn(2, 5))]
    losses = []

    def report(epoch, _, values, mode):
        losses.append(values["policy_loss"])

    def step(number):
        names["train"](agent, batches, num_epochs=1, batch_callback=report)
        return losses[-1]

    return model, step


def symptom(bug, fix):
    return not bug.missing("world") and fix.missing("world")
