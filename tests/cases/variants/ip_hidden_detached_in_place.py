"""Truncated BPTT detaches the hidden state with detach_() before the backward of the loss."""

import torch
from torch import nn


class GRU(nn.Module):
    def __init__(self, d_in, d):
        super().__init__()
        self.reset, self.cand = nn.Linear(d_in + d, d), nn.Linear(d_in + d, d)

    def forward(self, x, h):
        r = torch.sigmoid(self.reset(torch.cat([x, h], -1)))
        gated = r * h  # VICTIM
        n = torch.tanh(self.cand(torch.cat([x, gated], -1)))
        return n + r


class LanguageModel(nn.Module):
    def __init__(self, vocab=6, d=5):
        super().__init__()
        self.embed, self.cell, self.out = nn.Embedding(vocab, d), GRU(d, d), nn.Linear(d, vocab)

    def forward(self, tokens, h):
        losses, states = [], []
        for t in range(tokens.shape[1] - 1):
            h = self.cell(self.embed(tokens[:, t]), h)
            states.append(h)
            logits = self.out(h)  # VICTIM
            losses.append(nn.functional.cross_entropy(logits, tokens[:, t + 1]))
        return torch.stack(losses).mean(), states


def repackage_hidden(states, keep, inplace):
    """Return the initial states of the next window."""
    if not inplace:
        return [s.detach() for s in states[-keep:]]
    for s in states[-keep:]:
        s.detach_()  # CULPRIT
    return states[-keep:]


def _step(inplace):
    torch.manual_seed(0)
    model = LanguageModel()
    tokens = torch.randint(6, (2, 9))
    h = torch.zeros(2, 5)
    for window in (tokens[:, :5], tokens[:, 4:]):
        loss, states = model(window, h)
        h = repackage_hidden(states, 2, inplace)[-1]  # ALSO
        loss.backward()
    return {n: p.grad for n, p in model.named_parameters()}


def run():
    return _step(True)


def reference():
    return _step(False)
