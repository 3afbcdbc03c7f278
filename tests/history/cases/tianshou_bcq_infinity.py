"""Discrete BCQ masks actions with infinity times zero."""

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "tianshou/policy/imitation/discrete_bcq.py"
CASE = Case(
    repository="thu-ml/tianshou",
    fix="f134bc20b5",
    license="MIT",
    kind="nan",
    what="`np.inf * mask` is NaN where the mask is 0",
    paths=(FILE,),
    within={FILE: ((125, 135),)},
    options={"fingerprints": True},
)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(4, 3)

    def forward(self, obs, state=None, info=None):
        return self.out(obs), state


class Batch:
    def __init__(self, **values):
        self.__dict__.update(values)


def build():
    names = definitions(
        FILE,
        ["DiscreteBCQPolicy"],
        {"DQNPolicy": nn.Module, "Batch": Batch, "TLearningRateScheduler": object,
         "ImitationBatchProtocol": object, "RolloutBatchProtocol": object, "ReplayBuffer": object,
         "ObsBatchProtocol": object, "to_torch": torch.as_tensor,
         "INF": torch.finfo(torch.float32).max},
    )  # fmt: skip
    policy = names["DiscreteBCQPolicy"].__new__(names["DiscreteBCQPolicy"])
    nn.Module.__init__(policy)
    policy.model, policy.imitator, policy.model_old = Net(), Net(), Net()
    policy.max_action_num, policy._log_tau = 3, -0.3
    optimizer = torch.optim.Adam(policy.parameters())
    obs, obs_next, act = torch.randn(8, 4), torch.randn(8, 4), torch.randint(3, (8,))

    def step(number):
        with torch.no_grad():
            chosen = policy(Batch(obs=obs_next, info=None)).act
            target = policy.model_old(obs_next)[0][torch.arange(8), chosen]
        result = policy(Batch(obs=obs, info=None))
        q_loss = nn.functional.smooth_l1_loss(result.q_value[torch.arange(8), act], target)
        i_loss = nn.functional.cross_entropy(result.imitation_logits, act)
        loss = q_loss + i_loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return {"loss": loss, "chosen": chosen}

    return policy, step


def symptom(bug, fix):
    return not torch.equal(bug.values[0]["chosen"], fix.values[0]["chosen"])
