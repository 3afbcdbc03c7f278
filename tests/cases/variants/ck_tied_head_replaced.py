"""The tied output weight is replaced by a new parameter before backward."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class LM(nn.Module):
    def __init__(self, vocab=7, dim=4):
        super().__init__()
        self.emb, self.mid, self.head = nn.Embedding(vocab, dim), nn.Linear(dim, dim), nn.Linear(dim, vocab, bias=False)
        self.head.weight = self.emb.weight

    def decode(self, h):
        return self.head(torch.tanh(self.mid(h))).log_softmax(-1)  # VICTIM

    def forward(self, ids):
        return checkpoint(self.decode, self.emb(ids), use_reentrant=False)


def untie(model):
    model.head.weight = nn.Parameter(torch.zeros_like(model.emb.weight) + 0.1)  # CULPRIT


def go(early):
    torch.manual_seed(0)
    model = LM()
    loss = -model(torch.tensor([1, 2, 3])).diagonal().sum()
    if early:
        untie(model)  # ALSO
    loss.backward()
    return {n: p.grad for n, p in model.mid.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
