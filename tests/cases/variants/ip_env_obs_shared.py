"""The environment returns its NumPy state; torch.from_numpy shares it, and step() overwrites it."""
import numpy as np
import torch
from torch import nn


class CartLike:
    def __init__(self, copies):
        self.rng = np.random.default_rng(0)
        self.state = self.rng.normal(size=4).astype(np.float32)
        self.copies = copies

    def observe(self):
        return self.state.copy() if self.copies else self.state

    def step(self, force):
        self.state[:] = 0.9 * self.state + 0.1 * force + self.rng.normal(size=4).astype(np.float32)  # CULPRIT
        return self.observe(), float(-np.abs(self.state).sum())


class Reinforce:
    def __init__(self):
        torch.manual_seed(0)
        self.policy = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))

    def episode(self, env, steps):
        obs, terms = env.observe(), []
        for _ in range(steps):
            logits = self.policy(torch.from_numpy(obs))  # VICTIM
            action = int(logits.argmax())
            obs, reward = env.step(2.0 * action - 1)  # ALSO
            terms.append(-logits.log_softmax(-1)[action] * reward)
        return torch.stack(terms).sum()


def go(copies):
    agent = Reinforce()
    agent.episode(CartLike(copies), 4).backward()
    return {n: p.grad for n, p in agent.policy.named_parameters()}


def run():
    return go(False)


def reference():
    return go(True)
