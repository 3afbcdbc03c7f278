"""RL rollout: the recurrent state is set to zero in place at the end of an episode."""
import torch
from torch import nn


class Recurrent(nn.Module):
    def __init__(self, obs, hidden):
        super().__init__()
        self.cell = nn.GRUCell(obs, hidden)
        self.value = nn.Linear(hidden, 1)

    def forward(self, obs, state):
        state = self.cell(obs, state)
        return self.value(state).squeeze(-1), state  # VICTIM


class Rollout:
    def __init__(self, policy, inplace, envs=4):
        self.policy, self.inplace = policy, inplace
        self.state = torch.zeros(envs, 8)

    def reset_done(self, done):
        keep = (~done).float().unsqueeze(1)
        if self.inplace:
            self.state *= keep  # CULPRIT
        else:
            self.state = self.state * keep

    def collect(self, steps):
        g = torch.Generator().manual_seed(2)
        values = []
        for _ in range(steps):
            obs = torch.randn(4, 3, generator=g)
            value, self.state = self.policy(obs, self.state)
            values.append(value)
            self.reset_done(torch.rand(4, generator=g) < 0.3)
        return torch.stack(values)


def go(inplace):
    torch.manual_seed(0)
    policy = Recurrent(3, 8)
    Rollout(policy, inplace).collect(4).pow(2).mean().backward()
    return {n: p.grad for n, p in policy.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
