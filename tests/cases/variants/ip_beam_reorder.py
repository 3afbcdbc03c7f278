"""Beam search with learned scores: parents are gathered into the same score table."""
import torch
from torch import nn


class Beam:
    def __init__(self, width, inplace):
        self.scores, self.inplace = torch.zeros(width), inplace

    def advance(self, logp):
        options = self.scores[:, None] * logp.exp() + logp  # VICTIM
        best, flat = options.flatten().topk(len(self.scores))
        if self.inplace:
            self.scores[:] = best  # CULPRIT
        else:
            self.scores = best
        return flat % logp.shape[1]


class Decoder(nn.Module):
    def __init__(self, vocab=6, dim=4):
        super().__init__()
        self.embed, self.out = nn.Embedding(vocab, dim), nn.Linear(dim, vocab)

    def decode(self, beam, steps):
        tokens = torch.zeros(len(beam.scores), dtype=torch.long)
        for _ in range(steps):
            tokens = beam.advance(self.out(self.embed(tokens)).log_softmax(-1))  # ALSO
        return beam.scores


def go(inplace):
    torch.manual_seed(0)
    net = Decoder()
    (-net.decode(Beam(3, inplace), 3).sum()).backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
