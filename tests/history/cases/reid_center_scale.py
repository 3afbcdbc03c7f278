"""The weight of a center loss also scales the gradient of its centers, which have a rate of their own."""

from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "train_img_model_cent.py"
CASE = Case(
    repository="KaiyangZhou/deep-person-reid",
    fix="2685e7e",
    license="MIT",
    kind="scale",
    what="the gradient of the centers is not divided by `weight_cent` before their own step",
    paths=(FILE, "losses.py"),
)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.out = nn.Linear(6, 4), nn.Linear(4, 3)

    def forward(self, images):
        features = self.body(images)
        return self.out(features), features


def build():
    center_class = definitions("losses.py", ["CenterLoss"], {"Variable": lambda tensor: tensor})
    center = center_class["CenterLoss"](num_classes=3, feat_dim=4, use_gpu=False)
    model = Net()
    losses = []

    def cross_entropy(outputs, targets):
        return nn.functional.cross_entropy(outputs, targets).view(1)

    names = definitions(FILE, ["train"], {
        "args": SimpleNamespace(weight_cent=0.005, print_freq=100),
        "Variable": lambda tensor: tensor,
        "AverageMeter": lambda: SimpleNamespace(update=lambda value, n: losses.append(value)),
    })  # fmt: skip
    optimizers = [torch.optim.SGD(part.parameters(), lr=0.1) for part in (model, center)]
    loader = [(torch.randn(8, 6), torch.arange(8) % 3, None)]

    def step(number):
        names["train"](model, cross_entropy, center, *optimizers, loader, False)
        return losses[-1].clone()

    return nn.ModuleDict({"model": model, "center": center}), step


def symptom(bug, fix):
    return bug.norm("center") < 0.1 * fix.norm("center")
