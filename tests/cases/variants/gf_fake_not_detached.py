"""The discriminator loss is also backpropagated through the generator, whose step comes later."""
import torch
from torch import nn


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(3, 5), nn.Linear(5, 1)

    def forward(self, x):
        return self.outer(self.inner(x).tanh())


def critic_step(critic, fake):
    critic(fake).mean().backward()  # CULPRIT


def generator_step(critic, fake):
    (-critic(fake).mean()).backward()


def go(detaches):
    torch.manual_seed(0)
    generator, critic = nn.Linear(2, 3), Critic()
    fake = generator(torch.randn(4, 2)).sigmoid()  # VICTIM
    critic_step(critic, fake.detach() if detaches else fake)
    generator_step(critic, fake)
    return {n: p.grad for n, p in generator.named_parameters()}


def run():
    return go(False)


def reference():
    return go(True)
