"""The gradients of a discriminator are cleared once for several of its steps."""

from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "train_fns.py"
CASE = Case(
    repository="ajbrock/BigGAN-PyTorch",
    fix="b70f16c",
    license="MIT",
    kind="clearing",
    what="`D.optim.zero_grad()` is before the loop over the steps of the discriminator",
    paths=(FILE,),
    also={FILE: (23, 56)},
    options={"keep_steps": 4},
)


def build():
    generator, discriminator = nn.Linear(4, 8), nn.Linear(8, 1)
    generator.optim = torch.optim.Adam(generator.parameters(), lr=1e-3)
    discriminator.optim = torch.optim.Adam(discriminator.parameters(), lr=1e-3)
    used = []
    discriminator.optim.register_step_pre_hook(
        lambda *values: used.append(discriminator.weight.grad.clone())
    )

    def both(z, y, x=None, dy=None, train_G=False, split_D=False):
        if x is None:
            return discriminator(generator(z))
        with torch.set_grad_enabled(train_G):
            fake = generator(z)
        return discriminator(fake), discriminator(x)

    def toggle(model, on):
        for parameter in model.parameters():
            parameter.requires_grad = on

    train_function = definitions(FILE, ["GAN_training_function"], {
        "torch": torch, "utils": SimpleNamespace(toggle_grad=toggle),
        "losses": SimpleNamespace(
            discriminator_loss=lambda fake, real: ((1 - real).relu().mean(),
                                                   (1 + fake).relu().mean()),
            generator_loss=lambda fake: -fake.mean(),
        ),
    })["GAN_training_function"]  # fmt: skip
    z, y = torch.randn(4, 4), torch.arange(4)
    z.sample_ = y.sample_ = lambda: None
    config = {
        "batch_size": 4, "toggle_grads": True, "num_D_steps": 3, "num_D_accumulations": 1,
        "split_D": False, "D_ortho": 0.0, "num_G_accumulations": 1, "G_ortho": 0.0, "ema": False,
    }  # fmt: skip
    train = train_function(generator, discriminator, both, z, y, None, {}, config)
    x, labels = torch.randn(12, 8), torch.arange(12)

    def step(number):
        out = train(x, labels)
        return {"loss": out["G_loss"], "gradient": used[2]}

    return nn.ModuleDict({"generator": generator, "discriminator": discriminator}), step


def symptom(bug, fix):
    mine, right = (run.values[0]["gradient"] for run in (bug, fix))
    return bool((mine - right).norm() > 0.3 * right.norm())
