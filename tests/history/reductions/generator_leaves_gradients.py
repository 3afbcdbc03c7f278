"""The critic steps with the gradients that the loss of the generator left in it."""

import torch
from torch import nn

FOUND = True


def train(clear_before):
    torch.manual_seed(0)
    generator, critic = nn.Linear(3, 4), nn.Linear(4, 1)
    opt_g = torch.optim.SGD(generator.parameters(), lr=0.1)
    opt_c = torch.optim.SGD(critic.parameters(), lr=0.1)
    seen = []
    for _ in range(2):
        opt_g.zero_grad()
        (-critic(generator(torch.randn(6, 3))).mean()).backward()
        opt_g.step()
        if clear_before:
            opt_c.zero_grad()
        fake = generator(torch.randn(6, 3)).detach()
        real = torch.randn(6, 4)
        (critic(fake).mean() - critic(real).mean()).backward()  # CULPRIT
        seen += [p.grad.clone() for p in critic.parameters()]
        opt_c.step()
        opt_c.zero_grad()
    return seen


def run():
    return train(clear_before=False)


def reference():
    return train(clear_before=True)
