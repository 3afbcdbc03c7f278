"""Learned rows are written to a tensor with a graph while gradients are disabled."""

import torch
from torch import nn


class Prompted(nn.Module):
    def __init__(self, learned):
        super().__init__()
        self.table = nn.Embedding(8, 4)
        self.prompt = nn.Parameter(torch.ones(2, 4))
        self.learned = learned

    def forward(self, ids):
        rows = self.table(ids)
        prompt = torch.tanh(self.prompt)  # VICTIM
        if self.learned:
            return torch.cat([prompt, rows[2:]])
        with torch.no_grad():  # ALSO
            rows[:2] = prompt  # CULPRIT
        return rows


def go(learned):
    torch.manual_seed(0)
    net = Prompted(learned)
    net(torch.tensor([0, 0, 3, 5])).square().sum().backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(False)


def reference():
    return go(True)
