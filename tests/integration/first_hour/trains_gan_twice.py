"""A GAN on points of a circle, one optimizer each."""

import math

import torch
from torch import nn

torch.manual_seed(0)
G = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))
D = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
opt_g = torch.optim.Adam(G.parameters(), lr=1e-3)
opt_d = torch.optim.Adam(D.parameters(), lr=1e-3)
bce = nn.BCEWithLogitsLoss()
ones, zeros = torch.ones(32, 1), torch.zeros(32, 1)


def real_points(n):
    angle = torch.rand(n, 1) * 2 * math.pi
    return torch.cat([angle.cos(), angle.sin()], 1)


for i in range(50):
    real = real_points(32)
    fake = G(torch.randn(32, 4))

    opt_d.zero_grad()
    loss_d = bce(D(real), ones) + bce(D(fake), zeros)  # NAMED
    loss_d.backward()
    opt_d.step()

    opt_g.zero_grad()
    loss_g = bce(D(fake), ones)
    loss_g.backward()
    opt_g.step()
    if i % 10 == 0:
        print(i, loss_d.item(), loss_g.item())
