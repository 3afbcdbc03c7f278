"""Each stage of a residual quantizer passes its input through, so what remains has no gradient."""

import torch
from torch import nn

FOUND = False


def quantize(x, codes):
    return codes[torch.cdist(x, codes).argmin(-1)]


def stages_wrong(x, books):
    loss, rest = 0.0, x
    for codes in books:
        nearest = quantize(rest.detach(), codes)
        loss = loss + nn.functional.mse_loss(rest, nearest)
        passed = rest + (nearest - rest).detach()
        rest = rest - passed  # CULPRIT
    return loss


def stages_right(x, books):
    loss, rest = 0.0, x
    for codes in books:
        nearest = quantize(rest.detach(), codes)
        loss = loss + nn.functional.mse_loss(rest, nearest)
        rest = rest - nearest
    return loss


def train(stages):
    torch.manual_seed(0)
    encoder = nn.Linear(6, 3)
    books = [torch.randn(5, 3) for _ in range(3)]
    stages(encoder(torch.randn(12, 6)), books).backward()
    return [p.grad.clone() for p in encoder.parameters()]


def run():
    return train(stages_wrong)


def reference():
    return train(stages_right)
