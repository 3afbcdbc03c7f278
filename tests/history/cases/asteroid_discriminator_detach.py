"""The loss of a discriminator sends gradients into the generator."""

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "asteroid/engine/gan_system.py"
CASE = Case(
    repository="asteroid-team/asteroid",
    fix="d539faba",
    license="MIT",
    kind="detach",
    what="estimates are not detached; the generator's step uses the gradient of both losses",
    paths=(FILE,),
    steps=2,
)


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))

    def forward(self, signal, inputs, targets):
        return self.net(signal)


def discriminator_loss(inputs, targets, estimates, labels, is_true):
    wanted = torch.ones_like(labels) if is_true else torch.zeros_like(labels)
    return nn.functional.mse_loss(labels, wanted)


def generator_loss(estimates, targets, labels):
    return nn.functional.mse_loss(labels, torch.ones_like(labels))


def build():
    from types import SimpleNamespace

    lightning = SimpleNamespace(LightningModule=nn.Module, data_loader=lambda function: function)
    names = {"pl": lightning, "torch": torch, "sf": None}
    discriminator, generator = Discriminator(), nn.Sequential(nn.Linear(8, 8), nn.Tanh())
    optimizers = [
        torch.optim.SGD(discriminator.parameters(), lr=0.1),
        torch.optim.SGD(generator.parameters(), lr=0.1),
    ]
    system = definitions(FILE, ["GanSystem"], names)["GanSystem"](
        discriminator, generator, *optimizers, None, None, discriminator_loss, generator_loss,
        None, None,
    )  # fmt: skip
    batch = torch.randn(16, 8), torch.randn(16, 8)
    norms = []

    def step(number):
        for index, optimizer in enumerate(optimizers):
            loss = system.training_step(batch, number, index)["loss"]
            loss.backward()
            norms.append(
                float(sum(p.grad.norm() for p in generator.parameters() if p.grad is not None))
            )
            optimizer.step()
            optimizer.zero_grad()
        return {"loss": loss, "norm": norms[0]}

    return system, step


def symptom(bug, fix):
    return bug.values[0]["norm"] > 0
