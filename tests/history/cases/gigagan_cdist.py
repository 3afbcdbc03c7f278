"""A discriminator with a gradient penalty uses distances that cannot be differentiated twice."""

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "gigagan_pytorch/gigagan_pytorch.py"
CASE = Case(
    repository="lucidrains/gigagan-pytorch",
    fix="e76784eabe",
    license="MIT",
    kind="double backward",
    what="the derivative of `cdist` has no derivative",
    paths=(FILE,),
    within={FILE: ((327, 327),)},
)


def build():
    wanted = ["exists", "gradient_penalty", "discriminator_hinge_loss", "ChannelRMSNorm",
              "SelfAttention"]  # fmt: skip
    names = definitions(FILE, wanted, {})
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), names["SelfAttention"](8, dim_head=4, heads=2),
        nn.LeakyReLU(0.1), nn.Flatten(), nn.Linear(8 * 16, 1),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    real, fake = torch.randn(2, 3, 4, 4), torch.randn(2, 3, 4, 4)

    def step(number):
        images = real.clone().requires_grad_()
        logits = model(images)
        loss = names["discriminator_hinge_loss"](logits, model(fake))
        loss = loss + names["gradient_penalty"](images, logits)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return "not implemented" in bug.error
