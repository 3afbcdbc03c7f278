"""The adversarial loss of an inpainting network is computed without gradient."""

from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "mmedit/models/inpaintors/one_stage.py"
CASE = Case(
    repository="open-mmlab/mmagic",
    fix="7e3d6e01",
    license="NONE",
    kind="no_grad",
    what="the discriminator judges the generated image in `no_grad`",
    paths=(FILE,),
    within={FILE: ((155, 172),)},
)


def set_requires_grad(module, requires_grad):
    for parameter in module.parameters():
        parameter.requires_grad = requires_grad


def build():
    inpaintor = definitions(FILE, ["OneStageInpaintor"], {
        "BaseModel": nn.Module, "set_requires_grad": set_requires_grad,
        "MODELS": SimpleNamespace(register_module=lambda cls: cls),
    })["OneStageInpaintor"]  # fmt: skip
    model = inpaintor.__new__(inpaintor)
    nn.Module.__init__(model)
    model.generator = nn.Conv2d(4, 3, 3, padding=1)
    model.disc = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 1, 3))
    for name in ("l1_hole", "composed_percep", "out_percep", "tv", "disc_shift", "gp"):
        setattr(model, f"with_{name}_loss", False)
    model.with_gan = model.with_l1_valid_loss = True
    model.train_cfg, model.disc_step_count = SimpleNamespace(disc_step=1), 0

    def gan_loss(prediction, real, is_disc):
        target = torch.full_like(prediction, float(real))
        return nn.functional.binary_cross_entropy_with_logits(prediction, target)

    model.loss_gan = gan_loss
    model.loss_l1_valid = lambda image, target, weight: (
        0.1 * ((image - target).abs() * weight).mean()
    )
    losses = []

    def parse_losses(parts):
        losses.append(sum(parts.values()))
        return losses[-1], {}

    model.parse_losses = parse_losses
    optimizers = {name: torch.optim.Adam(getattr(model, part).parameters(), lr=1e-3)
                  for name, part in (("generator", "generator"), ("disc", "disc"))}  # fmt: skip
    image, mask = torch.rand(2, 3, 8, 8), torch.zeros(2, 1, 8, 8)
    mask[:, :, 2:6, 2:6] = 1
    batch = {"gt_img": image, "mask": mask, "masked_img": image * (1 - mask)}

    def step(number):
        model.train_step(batch, optimizers)
        return losses[-1].detach()

    return model, step


def symptom(bug, fix):
    return bug.norm("generator") < 0.5 * fix.norm("generator")
