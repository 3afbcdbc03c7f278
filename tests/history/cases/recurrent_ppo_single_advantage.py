"""A recurrent agent normalizes the advantages of a sequence of one step."""

from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import statement

FILE = "sb3_contrib/ppo_recurrent/ppo_recurrent.py"
CASE = Case(
    repository="Stable-Baselines-Team/stable-baselines3-contrib",
    fix="ef37cc79ad",
    license="MIT",
    kind="nan",
    what="the standard deviation of one advantage is NaN",
    paths=(FILE,),
    also={FILE: (393,)},
)


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(4, 8)
        self.actor, self.critic = nn.Linear(8, 3), nn.Linear(8, 1)

    def evaluate_actions(self, observations, actions, lstm_states, episode_starts):
        hidden, _ = self.lstm(observations)
        chosen = torch.distributions.Categorical(logits=self.actor(hidden))
        return self.critic(hidden), chosen.log_prob(actions), chosen.entropy()


def build():
    policy = Policy()
    policy.optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)

    def rollout(length):
        return SimpleNamespace(
            observations=torch.randn(length, 4), actions=torch.randint(3, (length,)),
            mask=torch.ones(length), lstm_states=None, episode_starts=None,
            advantages=torch.randn(length), returns=torch.randn(length),
            old_log_prob=torch.full((length,), -1.1), old_values=torch.zeros(length),
        )  # fmt: skip

    rollouts = [rollout(8), rollout(1)]
    trainer = SimpleNamespace(
        rollout_buffer=SimpleNamespace(get=lambda size: rollouts), batch_size=8, policy=policy,
        action_space=None, whole_sequences=False, use_sde=False, normalize_advantage=True,
        clip_range_vf=None, ent_coef=0.0, vf_coef=0.5, target_kl=None, verbose=0, max_grad_norm=0.5,
    )  # fmt: skip
    names = {
        "th": torch, "spaces": SimpleNamespace(Discrete=int), "self": trainer, "clip_range": 0.2,
        "epoch": 0, "approx_kl_divs": [], "pg_losses": [], "clip_fractions": [],
        "value_losses": [], "entropy_losses": [], "continue_training": True,
    }  # fmt: skip

    def step(number):
        statement(FILE, "for rollout_data in self.rollout_buffer.get(", names)
        return names["loss"]

    return policy, step


def symptom(bug, fix):
    return bug.has_nan()
