"""The discriminator is frozen for the generator step before its own backward."""

import torch
from torch import nn


def go(bug):
    torch.manual_seed(0)
    gen, disc = nn.Linear(2, 4), nn.Linear(4, 1)
    fake = gen(torch.randn(3, 2))
    d_loss = disc(fake.detach()).mean() - disc(torch.randn(3, 4)).mean()  # VICTIM
    if not bug:
        d_loss.backward()
    disc.requires_grad_(False)  # CULPRIT
    g_loss = -disc(fake).mean()
    if bug:
        d_loss.backward()
    g_loss.backward()
    return {
        **{n: p.grad for n, p in gen.named_parameters()},
        **{n: p.grad for n, p in disc.named_parameters()},
    }


def run():
    return go(True)


def reference():
    return go(False)
