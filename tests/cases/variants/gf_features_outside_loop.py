"""Node embeddings are computed once before the loop over link batches."""

import torch
import torch.nn.functional as F
from torch import nn


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin1, self.lin2 = nn.Linear(4, 8), nn.Linear(8, 3)

    def forward(self, x, adj):
        return adj @ self.lin2(torch.relu(adj @ self.lin1(x)))  # VICTIM


def link_loss(z, pairs, label):
    score = (z[pairs[:, 0]] * z[pairs[:, 1]]).sum(-1)
    return F.binary_cross_entropy_with_logits(score, label)


def go(bug):
    torch.manual_seed(0)
    x, adj = torch.randn(7, 4), torch.softmax(torch.randn(7, 7), 1)
    enc = Encoder()
    opt = torch.optim.SGD(enc.parameters(), lr=0.1)
    batches = [(torch.randint(0, 7, (5, 2)), torch.randint(0, 2, (5,)).float()) for _ in range(3)]
    if bug:
        z = enc(x, adj)  # CULPRIT
    for pairs, label in batches:
        if not bug:
            z = enc(x, adj)
        opt.zero_grad()
        link_loss(z, pairs, label).backward()
        opt.step()
    return {n: p.grad for n, p in enc.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
