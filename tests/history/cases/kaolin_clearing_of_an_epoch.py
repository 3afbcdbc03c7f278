"""A loop clears gradients before each epoch instead of each batch."""

from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import statement

FILE = "examples/Classification/pointcloud_classification.py"
CASE = Case(
    repository="NVIDIAGameWorks/kaolin",
    fix="3ad4713",
    license="Apache-2.0",
    kind="clearing",
    what="`zero_grad` is before the loop over batches, whose gradients are all added",
    paths=(FILE,),
    options={"keep_steps": 4},
)


class OnDevice:
    """A tensor that is on the device already."""

    def __init__(self, tensor):
        self.tensor = tensor

    def cuda(self):
        return self.tensor


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.point, self.out = nn.Linear(3, 16), nn.Linear(16, 4)

    def forward(self, points):
        return self.out(self.point(points).relu().amax(1))


def build():
    model = Classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    used, losses = [], []
    optimizer.register_step_pre_hook(lambda *_: used.append(model.out.weight.grad.clone()))

    def criterion(prediction, category):
        loss = nn.functional.cross_entropy(prediction, category)
        losses.append(loss.detach())
        return loss

    loader = [
        {"data": OnDevice(torch.randn(8, 10, 3)),
         "attributes": {"category": OnDevice(torch.randint(4, (8, 1)))}}
        for _ in range(4)
    ]  # fmt: skip
    names = {
        "torch": torch, "tqdm": lambda batches: batches, "args": SimpleNamespace(epochs=1),
        "model": model, "optimizer": optimizer, "criterion": criterion, "train_loader": loader,
        "val_loader": loader[:1], "print": lambda *values: None,
    }  # fmt: skip

    def step(number):
        statement(FILE, "for e in range(args.epochs):", names)
        return {"loss": losses[-2], "gradient": used[-1]}

    return model, step


def symptom(bug, fix):
    mine, right = (run.values[0]["gradient"] for run in (bug, fix))
    return bool((mine - right).norm() > 0.3 * right.norm())
