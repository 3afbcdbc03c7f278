"""The optimizer of a copied agent is a copy too, which steps on weights that nothing uses."""

from copy import deepcopy
from types import SimpleNamespace

import numpy as np
import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "morl_baselines/mo_algorithms/mo_ppo.py"
CASE = Case(
    repository="LucasAlegre/morl-baselines",
    fix="7ece06d",
    license="MIT",
    kind="optimizer",
    what="`deepcopy(self.optimizer)` copies the parameters, apart from those of the copied network",
    paths=(FILE,),
    steps=2,
    options={"keep_steps": 2},
)


class Networks(nn.Linear):
    obs_shape, action_shape, reward_dim = (6,), (2,), 2


def build():
    agent_class = definitions(FILE, ["MOPPOAgent"], {
        "MOPPONet": Networks, "PPOReplayBuffer": lambda *sizes: None, "SummaryWriter": object,
        "gym": SimpleNamespace(vector=SimpleNamespace(SyncVectorEnv=object)),
    })["MOPPOAgent"]  # fmt: skip
    model = Networks(6, 2)
    agent = agent_class(0, model, np.ones(2), SimpleNamespace(num_envs=1), None, device="cpu")
    agents = [agent]
    x, y = torch.randn(8, 6), torch.randn(8, 2)

    def step(number):
        agents.append(deepcopy(agents[-1]))
        agent = agents[-1]
        before = agent.networks.weight.detach().clone()
        agent.optimizer.zero_grad()
        loss = nn.functional.mse_loss(agent.networks(x), y)
        loss.backward()
        agent.optimizer.step()
        return {"loss": loss, "moved": (agent.networks.weight.detach() - before).abs().max()}

    return model, step


def symptom(bug, fix):
    return bool(bug.values[0]["moved"] == 0)
