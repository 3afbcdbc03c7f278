"""Pointer-generator decoder: the coverage vector is summed in place (abisee/atulkum style)."""

import torch
import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    def __init__(self, d, bug):
        super().__init__()
        self.W_h, self.W_s = nn.Linear(d, d, bias=False), nn.Linear(d, d)
        self.W_c, self.v = nn.Linear(1, d, bias=False), nn.Linear(d, 1, bias=False)
        self.bug = bug

    def forward(self, state, enc, coverage):
        feat = self.W_h(enc) + self.W_s(state).unsqueeze(1)
        feat = feat + self.W_c(coverage.unsqueeze(2))
        dist = F.softmax(self.v(torch.tanh(feat)).squeeze(2), dim=1)
        context = (dist.unsqueeze(2) * enc).sum(1)
        cov_loss = torch.min(dist, coverage).sum(1).mean()  # VICTIM
        if self.bug:
            coverage += dist  # CULPRIT
        else:
            coverage = coverage + dist
        return context, dist, coverage, cov_loss


def go(bug):
    torch.manual_seed(0)
    d = 6
    enc_rnn = nn.GRU(4, d, batch_first=True)
    cell = nn.GRUCell(d, d)
    att = Attention(d, bug)
    src = torch.randn(3, 7, 4)
    enc, h = enc_rnn(src)
    h = h[0]
    coverage = torch.zeros(3, 7)
    loss = 0
    for _ in range(3):
        ctx, dist, coverage, cov = att(h, enc, coverage)
        h = cell(ctx, h)
        loss = loss + cov - dist[:, 0].clamp(min=1e-6).log().mean()
    loss.backward()
    return {n: p.grad for n, p in att.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
