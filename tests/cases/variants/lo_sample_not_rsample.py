"""VAE with torch.distributions: sample() instead of rsample()."""

import torch
import torch.nn.functional as F
from torch import nn


class VAE(nn.Module):
    def __init__(self, bug):
        super().__init__()
        self.enc, self.dec, self.bug = nn.Linear(8, 6), nn.Linear(3, 8), bug

    def forward(self, x):
        mu, log_std = self.enc(x).chunk(2, dim=-1)  # VICTIM
        q = torch.distributions.Normal(mu, log_std.exp())
        if self.bug:
            z = q.sample()  # CULPRIT
        else:
            z = q.rsample()
        return self.dec(z)


def go(bug):
    torch.manual_seed(0)
    vae = VAE(bug)
    opt = torch.optim.Adam(vae.parameters(), lr=1e-3)
    for _ in range(2):
        x = torch.rand(5, 8)
        loss = F.mse_loss(vae(x), x)
        opt.zero_grad()
        loss.backward()
        opt.step()
    return {n: p.grad for n, p in vae.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
