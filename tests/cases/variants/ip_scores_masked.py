"""The attention mask is written into the scores after a z-loss saved them."""
import torch
from torch import nn


class ZLoss:
    def __init__(self):
        self.terms = []

    def look(self, scores):
        self.terms.append(scores.square().mean())  # VICTIM
        return scores

    def total(self):
        return 1e-2 * sum(self.terms)


def causal(n):
    return torch.ones(n, n, dtype=torch.bool).triu(1)


class Attention(nn.Module):
    def __init__(self, dim, z, fill):
        super().__init__()
        self.qkv, self.z, self.fill = nn.Linear(dim, 3 * dim), z, fill

    def forward(self, x):
        q, k, v = self.qkv(x).split(x.shape[-1], -1)
        scores = self.z.look(q @ k.mT / x.shape[-1] ** 0.5)
        scores = self.fill(scores, causal(x.shape[1]))  # ALSO
        return scores.softmax(-1) @ v


def fill_(scores, mask):
    return scores.masked_fill_(mask, -1e9)  # CULPRIT


def fill(scores, mask):
    return scores.masked_fill(mask, -1e9)


def go(how):
    torch.manual_seed(0)
    z = ZLoss()
    net = Attention(6, z, how)
    (net(torch.randn(2, 4, 6)).pow(2).mean() + z.total()).backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(fill_)


def reference():
    return go(fill)
