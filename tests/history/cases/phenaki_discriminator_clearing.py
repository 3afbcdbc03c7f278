"""The gradients that the generator loss leaves in the discriminator are not cleared."""

from contextlib import nullcontext
from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions, statement

FILE = "phenaki_pytorch/cvivit_trainer.py"
CASE = Case(
    repository="lucidrains/phenaki-pytorch",
    fix="3c33570",
    license="MIT",
    kind="clearing",
    what="`discr_optim.zero_grad()` is after the step of the discriminator and not before its loss",
    paths=(FILE,),
)


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode, self.decode, self.discr = nn.Linear(8, 4), nn.Linear(4, 8), nn.Linear(8, 1)

    def forward(self, x, return_discr_loss=False, apply_grad_penalty=False):
        reconstructed = self.decode(self.encode(x))
        if return_discr_loss:
            fake, real = self.discr(reconstructed.detach()), self.discr(x)
            return ((1 + fake).relu() + (1 - real).relu()).mean()
        return nn.functional.mse_loss(reconstructed, x) - self.discr(reconstructed).mean()


def build():
    names = definitions(FILE, ["exists", "accum_log"], {"torch": torch})
    statement(FILE, "def train_step(self)", names)
    vae = Autoencoder()
    discriminator = vae.discr
    used = []
    trainer = SimpleNamespace(
        device="cpu", steps=torch.tensor(1), apply_grad_penalty_every=4, vae=vae,
        grad_accum_every=1, dl_iter=iter([torch.randn(4, 8), torch.randn(4, 8)]),
        accelerator=SimpleNamespace(autocast=nullcontext, backward=lambda loss: loss.backward()),
        max_grad_norm=None, discr_max_grad_norm=None, print=lambda text: None, is_main=False,
        use_ema=False, save_results_every=100, save_model_every=100,
        optim=torch.optim.Adam([*vae.encode.parameters(), *vae.decode.parameters()], lr=1e-3),
        discr_optim=torch.optim.Adam(discriminator.parameters(), lr=1e-3),
    )  # fmt: skip
    trainer.discr_optim.register_step_pre_hook(
        lambda *values: used.append(discriminator.weight.grad.clone())
    )

    def step(number):
        logs = names["train_step"](trainer)
        return {"loss": logs["loss"], "gradient": used[-1]}

    return vae, step


def symptom(bug, fix):
    mine, right = (run.values[0]["gradient"] for run in (bug, fix))
    return bool((mine - right).norm() > 0.3 * right.norm())
