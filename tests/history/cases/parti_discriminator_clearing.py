"""The gradients that the generator loss leaves in the discriminator are part of its step."""

from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions, statement

FILE = "parti_pytorch/vit_vqgan_trainer.py"
CASE = Case(
    repository="lucidrains/parti-pytorch",
    fix="faf615e",
    license="MIT",
    kind="clearing",
    what="`discr_optim.zero_grad()` is after the step of the discriminator and not before its loss",
    paths=(FILE,),
)


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.net, self.discr = nn.Sequential(nn.Linear(8, 4), nn.Linear(4, 8)), nn.Linear(8, 1)

    def forward(self, x, return_loss=False, return_discr_loss=False, apply_grad_penalty=False):
        reconstructed = self.net(x)
        if return_discr_loss:
            real, fake = self.discr(x), self.discr(reconstructed.detach())
            return ((1 - real).relu() + (1 + fake).relu()).mean()
        return nn.functional.mse_loss(reconstructed, x) - self.discr(reconstructed).mean()


def build():
    names = definitions(FILE, ["exists", "accum_log"], {
        "torch": torch, "print": lambda *values: None,
        "autocast": lambda enabled: torch.autocast("cpu", enabled=enabled),
    })  # fmt: skip
    statement(FILE, "def train_step(self)", names)
    vae = Autoencoder()
    discriminator = vae.discr
    used, scaler = [], torch.amp.GradScaler(enabled=False)
    trainer = SimpleNamespace(
        steps=torch.tensor(1), apply_grad_penalty_every=4, vae=vae, grad_accum_every=1, amp=False,
        dl=iter([torch.randn(4, 8), torch.randn(4, 8)]), scaler=scaler, discr_scaler=scaler,
        optim=torch.optim.Adam(vae.net.parameters(), lr=1e-3), save_results_every=100,
        discr_optim=torch.optim.Adam(discriminator.parameters(), lr=1e-3), save_model_every=100,
        ema_vae=SimpleNamespace(update=lambda: None),
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
