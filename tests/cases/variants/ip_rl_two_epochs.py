"""PPO: the old log-probabilities keep their graph, and the second epoch uses changed weights."""

import torch
from torch import nn


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.pi = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))

    def logp(self, obs, act):
        return self.pi(obs).log_softmax(-1).gather(1, act[:, None])[:, 0]  # VICTIM


def update(agent, opt, obs, act, adv, old):
    for _ in range(2):
        ratio = (agent.logp(obs, act) - old).exp()
        loss = -(ratio * adv).mean()
        opt.zero_grad()
        loss.backward(retain_graph=True)  # ALSO
        opt.step()  # CULPRIT


def go(detach):
    torch.manual_seed(0)
    agent = Agent()
    opt = torch.optim.Adam(agent.parameters(), lr=0.05)
    obs, act, adv = torch.randn(6, 3), torch.randint(0, 2, (6,)), torch.randn(6)
    old = agent.logp(obs, act)
    update(agent, opt, obs, act, adv, old.detach() if detach else old)
    return {n: p.grad for n, p in agent.named_parameters()}


def run():
    return go(False)


def reference():
    return go(True)
