"""A trainer clips gradients before it unscales them."""

from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import statement

FILE = "dalle2_pytorch/train.py"
CASE = Case(
    repository="lucidrains/DALLE2-pytorch",
    fix="1924c7cc3d",
    license="MIT",
    kind="clipping",
    what="the norm of scaled gradients is clipped, and unscaling makes them tiny",
    paths=(FILE,),
)


def build():
    names = {"nn": nn, "exists": lambda value: value is not None}
    statement(FILE, "def update(self, unet_number", names)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=4096.0)
    seen = []
    optimizer.register_step_pre_hook(
        lambda *_: seen.append(torch.cat([p.grad.flatten() for p in model.parameters()]).norm())
    )
    trainer = SimpleNamespace(
        num_unets=1, decoder=SimpleNamespace(unets=[model]), max_grad_norm=0.5, use_ema=False,
        optim0=optimizer, scaler0=scaler,
    )  # fmt: skip
    x, y = torch.randn(16, 4), torch.randn(16, 1)

    def step(number):
        loss = nn.functional.mse_loss(model(x), y)
        scaler.scale(loss).backward()
        names["update"](trainer, 1)
        return {"loss": loss, "norm": seen[-1]}

    return model, step


def symptom(bug, fix):
    return float(bug.values[0]["norm"]) < 0.01 * float(fix.values[0]["norm"])
