"""An augmentation shifts the images of a batch in place, one by one."""

import torch
from torch import nn

from tests.history.case import Case

CASE = Case(
    repository="lucidrains/lightweight-gan",
    fix="5d126850cd",
    license="MIT",
    kind="in-place",
    what="`x[image_index] = ...` writes a leaf whose gradient the penalty needs",
    paths=("lightweight_gan/diff_augment.py",),
    also={"lightweight_gan/diff_augment.py": (63, 66)},
)


def build():
    from lightweight_gan.diff_augment import DiffAugment

    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.LeakyReLU(0.1), nn.Flatten(), nn.Linear(144, 1))
    optimizer = torch.optim.Adam(model.parameters())
    real = torch.rand(4, 1, 8, 8)

    def step(number):
        optimizer.zero_grad()
        images = real.clone().requires_grad_()
        scores = model(DiffAugment(images, types=["offset"]))
        [gradient] = torch.autograd.grad(scores.sum(), images, create_graph=True)
        loss = nn.functional.softplus(-scores).mean() + 10 * gradient.square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return "leaf" in bug.error and "in-place" in bug.error
