"""The environment reuses one observation array; torch.from_numpy() shares its memory."""

import numpy as np
import torch
from torch import nn


class PointEnv:
    def __init__(self):
        self.rng = np.random.default_rng(0)
        self.obs = np.zeros(4, dtype=np.float32)

    def reset(self):
        self.obs[:] = self.rng.normal(size=4)
        return self.obs

    def step(self, action):
        self.obs[:2] += 0.5 * self.obs[2:] + action  # CULPRIT
        return self.obs, -float(np.square(self.obs[:2]).sum())


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))

    def forward(self, obs):
        return self.body(obs).log_softmax(-1)  # VICTIM


def rollout(env, policy, steps, copy):
    obs, log_probs, rewards = env.reset(), [], []
    for t in range(steps):
        state = torch.from_numpy(obs.copy() if copy else obs)  # ALSO
        log_prob = policy(state)
        action = t % 2
        obs, reward = env.step(1.0 if action else -1.0)  # ALSO
        log_probs.append(log_prob[action])
        rewards.append(reward)
    returns = torch.tensor(rewards).flip(0).cumsum(0).flip(0)
    return -(torch.stack(log_probs) * returns).mean()


def _step(fixed):
    torch.manual_seed(0)
    policy = Policy()
    rollout(PointEnv(), policy, steps=4, copy=fixed).backward()
    return {n: p.grad for n, p in policy.named_parameters()}


def run():
    return _step(False)


def reference():
    return _step(True)
