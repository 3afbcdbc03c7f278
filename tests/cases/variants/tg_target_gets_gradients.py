"""DQN: the target network's value is computed with a graph and the target is not detached."""

import copy

import torch
import torch.nn.functional as F
from torch import nn


def td_loss(q, target, batch, bug):
    s, a, r, s2 = batch
    q_sa = q(s).gather(1, a[:, None]).squeeze(1)
    q_next = target(s2).max(1).values  # CULPRIT
    if not bug:
        q_next = q_next.detach()
    return F.smooth_l1_loss(q_sa, r + 0.99 * q_next)  # ALSO


def go(bug):
    torch.manual_seed(0)
    q = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
    target = copy.deepcopy(q)
    opt = torch.optim.Adam(q.parameters(), lr=1e-3)
    for i in range(4):
        batch = torch.randn(6, 4), torch.randint(0, 2, (6,)), torch.randn(6), torch.randn(6, 4)
        loss = td_loss(q, target, batch, bug)
        opt.zero_grad()
        loss.backward()  # VICTIM
        opt.step()
        if i == 2:
            target.load_state_dict(q.state_dict())
    return {n: p.grad for n, p in target.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
