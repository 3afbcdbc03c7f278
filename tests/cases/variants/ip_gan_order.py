"""The discriminator steps before the backward of the generator loss, which used its old weights."""

import torch
import torch.nn.functional as F
from torch import nn


def make():
    gen = nn.Sequential(nn.Linear(3, 6), nn.LeakyReLU(0.2), nn.Linear(6, 4))
    disc = nn.Sequential(nn.Linear(4, 6), nn.LeakyReLU(0.2), nn.Linear(6, 1))
    return gen, disc


def update(optimizer, loss, keep=False):
    optimizer.zero_grad()
    loss.backward(retain_graph=keep)  # ALSO
    optimizer.step()  # ALSO


def go(wrong):
    torch.manual_seed(0)
    gen, disc = make()
    g_opt = torch.optim.SGD(gen.parameters(), lr=0.1)
    d_opt = torch.optim.SGD(disc.parameters(), lr=0.1)
    real, noise = torch.randn(5, 4), torch.randn(5, 3)
    fake = gen(noise)
    score = disc(fake)  # CULPRIT
    d_loss = F.softplus(-disc(real)).mean() + F.softplus(disc(fake.detach())).mean()
    g_loss = F.softplus(-score).mean()
    if wrong:
        update(d_opt, d_loss, keep=True)
        update(g_opt, g_loss)
    else:
        update(g_opt, g_loss)
        update(d_opt, d_loss)
    return {n: p.grad for n, p in gen.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
