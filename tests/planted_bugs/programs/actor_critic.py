"""Policy gradient with a value baseline and an entropy term, on a made-up environment."""

import torch
import torch.nn.functional as F
from torch import nn


class Agent(nn.Module):
    def __init__(self, width=16, actions=3):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, width), nn.Tanh())
        self.policy = nn.Linear(width, actions)
        self.value = nn.Linear(width, 1)
        self.temperature = nn.Parameter(torch.ones(()))

    def forward(self, state):
        h = self.body(state)
        logits = self.policy(h) / self.temperature
        value = self.value(h).squeeze(-1)
        return logits, value


def rewards_of(states, actions):
    return (states[:, 0] * (actions == 1).float()) - 0.1 * actions.float()


def discounted(rewards, gamma=0.9):
    total, out = torch.zeros(()), []
    for r in reversed(rewards.unbind()):
        total = r + gamma * total
        out.append(total)
    return torch.stack(out[::-1])


def losses(agent, states):
    logits, values = agent(states)
    log_probs = F.log_softmax(logits, -1)
    actions = torch.multinomial(log_probs.exp().detach(), 1).squeeze(1)
    returns = discounted(rewards_of(states, actions))
    advantage = returns - values.detach()
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-6)
    chosen = log_probs.gather(1, actions[:, None]).squeeze(1)
    policy_loss = -(chosen * advantage).mean()
    value_loss = F.mse_loss(values, returns)
    entropy = -(log_probs.exp() * log_probs).sum(-1).mean()
    return policy_loss, value_loss, entropy


def main():
    torch.manual_seed(0)
    agent = Agent()
    optimizer = torch.optim.Adam(agent.parameters(), lr=1e-2)
    log = {"policy": [], "value": []}
    for _ in range(4):
        states = torch.randn(12, 4)
        policy_loss, value_loss, entropy = losses(agent, states)
        loss = policy_loss + 0.5 * value_loss - 0.01 * entropy
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        log["policy"].append(policy_loss.item())
        log["value"].append(value_loss.item())
    return dict(agent.named_parameters())
