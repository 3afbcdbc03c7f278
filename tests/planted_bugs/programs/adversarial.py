"""Generator and critic with a gradient penalty."""

import torch
from torch import nn


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 16)
        self.layers = nn.ModuleList([nn.Linear(16, 16), nn.Linear(16, 16)])
        self.last = nn.Linear(16, 2)

    def forward(self, z):
        h = torch.relu(self.first(z))
        for layer in self.layers:
            h = h + torch.tanh(layer(h))
        out = self.last(h)
        return out


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(2, 16)
        self.last = nn.Linear(16, 1)
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x):
        h = torch.tanh(self.first(x))
        score = self.last(h) * self.scale
        return score


def penalty(critic, real, fake):
    mix = torch.rand(real.shape[0], 1)
    point = (mix * real + (1 - mix) * fake).detach().requires_grad_()
    score = critic(point).sum()
    (grad,) = torch.autograd.grad(score, point, create_graph=True)
    norm = grad.norm(dim=1)
    excess = (norm - 1.0) ** 2
    return excess.mean()


def main():
    torch.manual_seed(0)
    generator, critic = Generator(), Critic()
    g_optimizer = torch.optim.Adam(generator.parameters(), lr=1e-2)
    c_optimizer = torch.optim.Adam(critic.parameters(), lr=1e-2)
    for _ in range(3):
        real = torch.randn(8, 2) + 2
        noise = torch.randn(8, 4)
        fake = generator(noise)
        c_optimizer.zero_grad()
        c_loss = critic(fake.detach()).mean() - critic(real).mean()
        c_loss = c_loss + 10 * penalty(critic, real, fake.detach())
        c_loss.backward()
        c_optimizer.step()
        g_optimizer.zero_grad()
        g_loss = -critic(fake).mean()
        g_loss.backward()
        g_optimizer.step()
    values = {f"g.{n}": p for n, p in generator.named_parameters()}
    values.update({f"c.{n}": p for n, p in critic.named_parameters()})
    return values
