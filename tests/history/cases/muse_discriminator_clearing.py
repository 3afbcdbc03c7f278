"""The gradients that a generator's loss leaves in the discriminator are stepped as well."""

from contextlib import nullcontext
from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions, statement

FILE = "muse_maskgit_pytorch/trainers.py"
CASE = Case(
    repository="lucidrains/muse-maskgit-pytorch",
    fix="f7ea957000",
    license="MIT",
    kind="clearing",
    what="the discriminator is cleared after its step, not before its backward",
    paths=(FILE,),
)


class Vae(nn.Module):
    def __init__(self):
        super().__init__()
        self.net, self.discr = nn.Linear(6, 6), nn.Linear(6, 1)

    def forward(self, img, add_gradient_penalty=False, return_loss=False, return_discr_loss=False):
        fake = self.net(img)
        if return_discr_loss:
            real, fake = self.discr(img), self.discr(fake.detach())
            return ((1 - real).relu() + (1 + fake).relu()).mean()
        return nn.functional.mse_loss(fake, img) - self.discr(fake).mean()


def build():
    names = {"torch": torch}
    definitions(FILE, ["exists", "accum_log"], names)
    statement(FILE, "def train_step(self", names)
    model = Vae()
    generator = [p for n, p in model.named_parameters() if not n.startswith("discr")]
    trainer = SimpleNamespace(
        device="cpu", steps=torch.tensor(1), apply_grad_penalty_every=4, vae=model,
        grad_accum_every=1, dl_iter=iter(torch.randn(40, 8, 6)), max_grad_norm=None,
        accelerator=SimpleNamespace(autocast=nullcontext, backward=lambda loss: loss.backward()),
        optim=torch.optim.SGD(generator, lr=0.01),
        discr_optim=torch.optim.SGD(model.discr.parameters(), lr=0.01), discr_max_grad_norm=None,
        print=lambda text: None, is_main=False, use_ema=False,
    )  # fmt: skip
    seen = []
    trainer.discr_optim.register_step_pre_hook(
        lambda *_: seen.append(model.discr.weight.grad.clone())
    )

    def step(number):
        logs = names["train_step"](trainer)
        return {"loss": logs["loss"], "gradient": seen[-1]}

    return model, step


def symptom(bug, fix):
    first, second = bug.values[0]["gradient"], fix.values[0]["gradient"]
    return bool((first - second).norm() > 0.1 * second.norm())
