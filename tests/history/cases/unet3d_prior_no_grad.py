"""A discriminator that serves as a loss is evaluated without gradients."""

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "pytorch3dunet/unet3d/losses.py"
CASE = Case(
    repository="wolny/pytorch-3dunet",
    fix="c3769a6",
    license="MIT",
    kind="no_grad",
    what="the prior of shapes has no graph, so it does not train the embeddings",
    paths=(FILE,),
    within={FILE: ((740, 780),)},
)


class WGANDiscriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.LeakyReLU(), nn.Linear(8, 1))

    def forward(self, x):
        return self.net(x)


def build():
    names = definitions(FILE, ["GANShapePriorLoss"], {
        "WGANDiscriminator": WGANDiscriminator, "get_model": lambda config: WGANDiscriminator(),
        "load_checkpoint": lambda *parts, **options: None,
    })  # fmt: skip
    prior = names["GANShapePriorLoss"]("model.pytorch", {"device": "cpu"})
    model = nn.ModuleDict({"features": nn.Conv2d(1, 4, 3, padding=1), "mask": nn.Conv2d(4, 1, 1)})
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    x, target = torch.randn(1, 1, 8, 8), (torch.rand(8, 8) > 0.5).float()

    def step(number):
        optimizer.zero_grad()
        features = model["features"](x)
        smooth = (features[:, :, 1:] - features[:, :, :-1]).abs().mean()
        shape_loss = prior(model["mask"](features.relu())[0, 0].sigmoid(), target)
        loss = smooth + shape_loss.sum()
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return bug.missing("mask")
