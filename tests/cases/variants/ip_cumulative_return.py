"""Discounted returns are built backwards in place, from value estimates that carry gradients."""
import torch
from torch import nn


def returns_(values, rewards, gamma):
    for t in reversed(range(len(rewards) - 1)):
        values[t] = rewards[t] + gamma * values[t + 1]  # CULPRIT
    return values


def returns(values, rewards, gamma):
    out = [values[-1]]
    for r in reversed(rewards[:-1]):
        out.append(r + gamma * out[-1])
    return torch.stack(out[::-1])


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 8), nn.ELU(), nn.Linear(8, 1), nn.Softplus())
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, obs):
        return self.net(obs).squeeze(-1)


def go(how):
    torch.manual_seed(0)
    critic = Critic()
    obs, rewards = torch.randn(6, 3), torch.rand(6)
    values = critic(obs)
    weighted = values * critic.scale  # VICTIM
    target = how(values, rewards, 0.9)  # ALSO
    (weighted - target).pow(2).mean().backward()
    return {n: p.grad for n, p in critic.named_parameters()}


def run():
    return go(returns_)


def reference():
    return go(returns)
