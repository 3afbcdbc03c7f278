"""A mixture of experts with a balance loss and a table of recent inputs."""

import torch
import torch.nn.functional as F
from torch import nn


class Expert(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x):
        h = F.gelu(self.up(x))
        return self.down(h)


class Mixture(nn.Module):
    def __init__(self, width=8, experts=3):
        super().__init__()
        self.router = nn.Linear(width, experts)
        self.experts = nn.ModuleList([Expert(width) for _ in range(experts)])
        self.register_buffer("load", torch.zeros(experts))

    def forward(self, x):
        logits = self.router(x)
        weights = logits.softmax(-1)
        top, index = weights.topk(2, dim=-1)
        top = top / top.sum(-1, keepdim=True)
        out = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            share = (top * (index == i)).sum(-1, keepdim=True)
            out = out + share * expert(x)
        used = F.one_hot(index, len(self.experts)).float().sum(1).mean(0)
        self.load.mul_(0.9).add_(used, alpha=0.1)
        balance = (weights.mean(0) * used).sum()
        return x + out, balance


class Model(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.embed = nn.Linear(5, width)
        self.mixtures = nn.ModuleList([Mixture(width), Mixture(width)])
        self.head = nn.Linear(width, 1)

    def forward(self, x):
        h = self.embed(x)
        penalty = 0.0
        for mixture in self.mixtures:
            h, balance = mixture(h)
            penalty = penalty + balance
        y = self.head(h).squeeze(-1)
        return y, penalty


def main():
    torch.manual_seed(0)
    model = Model()
    decay = [p for p in model.parameters() if p.dim() > 1]
    plain = [p for p in model.parameters() if p.dim() <= 1]
    groups = [{"params": decay, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-2)
    seen = []
    for _ in range(4):
        x = torch.randn(16, 5)
        target = x.sum(1).sin()
        y, penalty = model(x)
        error = F.smooth_l1_loss(y, target)
        loss = error + 0.01 * penalty
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        seen.append(error.item())
    return dict(model.named_parameters())
