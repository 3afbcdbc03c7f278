"""PPO normalizes the advantages of a minibatch that has one sample."""

from types import SimpleNamespace

import numpy as np
import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import statement

FILE = "stable_baselines3/ppo/ppo.py"
CASE = Case(
    repository="DLR-RM/stable-baselines3",
    fix="2cc1477f",
    license="MIT",
    kind="nan",
    what="the standard deviation of one number is NaN",
    paths=(FILE,),
    within={FILE: ((205, 220),)},
    also={FILE: (214,)},
    options={"fingerprints": True},
)


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.pi, self.v = nn.Linear(4, 2), nn.Linear(4, 1)
        self.optimizer = torch.optim.SGD(self.parameters(), lr=0.1)

    def set_training_mode(self, mode):
        self.train(mode)

    def evaluate_actions(self, obs, actions):
        distribution = torch.distributions.Categorical(logits=self.pi(obs))
        return self.v(obs), distribution.log_prob(actions), distribution.entropy()


def build():
    names = {
        "th": torch, "np": np, "F": nn.functional, "spaces": SimpleNamespace(Discrete=int),
        "explained_variance": lambda *values: 0.0,
    }  # fmt: skip
    statement(FILE, "def train(self", names)
    policy = Policy()

    def batch(size):
        return SimpleNamespace(
            observations=torch.randn(size, 4), actions=torch.randint(2, (size, 1)).float(),
            advantages=torch.randn(size), returns=torch.randn(size),
            old_log_prob=torch.full((size,), -0.7), old_values=torch.zeros(size),
        )  # fmt: skip

    batches = [batch(4), batch(1)]  # the last one is what remains of the buffer
    values = SimpleNamespace(flatten=lambda: None)
    agent = SimpleNamespace(
        policy=policy, _update_learning_rate=lambda optimizer: None, clip_range=lambda rest: 0.2,
        clip_range_vf=None, _current_progress_remaining=1.0, n_epochs=1, batch_size=4,
        action_space=0, use_sde=False, normalize_advantage=True, ent_coef=0.01, vf_coef=0.5,
        target_kl=None, verbose=0, max_grad_norm=0.5, _n_updates=0,
        rollout_buffer=SimpleNamespace(get=lambda size: batches, values=values, returns=values),
        logger=SimpleNamespace(record=lambda *a, **k: None),
    )  # fmt: skip

    def step(number):
        names["train"](agent)
        return {"loss": policy.pi.weight.sum()}

    return policy, step


def symptom(bug, fix):
    return bug.has_nan()
