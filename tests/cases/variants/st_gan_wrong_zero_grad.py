"""GAN: the generator's optimizer is cleared twice, the discriminator's never."""

import torch
import torch.nn.functional as F
from torch import nn


def step(G, D, opt_g, opt_d, real, bug):
    bce = F.binary_cross_entropy_with_logits
    z = torch.randn(len(real), 4)
    ones, zeros = torch.ones(len(real), 1), torch.zeros(len(real), 1)
    (opt_g if bug else opt_d).zero_grad()  # ALSO
    fake = G(z)
    d_loss = bce(D(real), ones) + bce(D(fake.detach()), zeros)
    d_loss.backward()
    opt_d.step()  # CULPRIT
    opt_g.zero_grad()
    g_loss = bce(D(fake), ones)
    g_loss.backward()  # VICTIM
    opt_g.step()


def go(bug):
    torch.manual_seed(0)
    G = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    D = nn.Sequential(nn.Linear(3, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1))
    opt_g, opt_d = (torch.optim.Adam(m.parameters(), lr=2e-4, betas=(0.5, 0.999)) for m in (G, D))
    for _ in range(3):
        step(G, D, opt_g, opt_d, torch.randn(6, 3), bug)
    return {n: p.detach().clone() for n, p in D.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
