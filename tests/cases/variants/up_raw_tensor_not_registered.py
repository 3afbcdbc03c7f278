"""A learnable temperature is a plain tensor with requires_grad, so parameters() does not list it."""

import torch
import torch.nn.functional as F
from torch import nn


class ContrastiveHead(nn.Module):
    def __init__(self, bug):
        super().__init__()
        self.proj = nn.Linear(6, 4)
        if bug:
            self.temperature = torch.ones(1, requires_grad=True)  # CULPRIT
        else:
            self.temperature = nn.Parameter(torch.ones(1))

    def forward(self, a, b):
        a, b = F.normalize(self.proj(a), dim=1), F.normalize(self.proj(b), dim=1)
        return a @ b.t() / self.temperature


def go(bug):
    torch.manual_seed(0)
    head = ContrastiveHead(bug)
    opt = torch.optim.AdamW(head.parameters(), lr=1e-2)
    for _ in range(3):
        logits = head(torch.randn(5, 6), torch.randn(5, 6))
        loss = F.cross_entropy(logits, torch.arange(5))
        opt.zero_grad()
        loss.backward()  # VICTIM
        opt.step()
    return {"t": head.temperature.detach().clone()}


def run():
    return go(True)


def reference():
    return go(False)
