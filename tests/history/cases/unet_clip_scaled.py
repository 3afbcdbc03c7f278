"""A loop clips gradients that still have the scale of the loss."""

from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions, statement

FILE = "train.py"
CASE = Case(
    repository="milesial/Pytorch-UNet",
    fix="52b4f14e91",
    license="GPL-3.0-only",
    kind="scale",
    what="gradients are clipped before they are unscaled",
    paths=(FILE, "utils/dice_score.py"),
)


def build():
    dice = definitions(
        "utils/dice_score.py", ["dice_coeff", "multiclass_dice_coeff", "dice_loss"], {}
    )
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 1, 3, padding=1))
    model.n_channels, model.n_classes = 3, 1
    batches = [{"image": torch.randn(2, 3, 8, 8), "mask": torch.randint(2, (2, 8, 8))}]
    names = {
        "torch": torch, "F": nn.functional, "model": model, "device": torch.device("cpu"),
        "train_loader": batches, "amp": True, "dice_loss": dice["dice_loss"],
        "criterion": nn.BCEWithLogitsLoss(), "gradient_clipping": 1.0, "global_step": 0,
        "optimizer": torch.optim.RMSprop(model.parameters(), lr=1e-5, momentum=0.99),
        "grad_scaler": torch.amp.GradScaler("cpu"), "n_train": 0, "batch_size": 2, "epoch": 1,
        "pbar": SimpleNamespace(update=lambda n: None, set_postfix=lambda **k: None),
        "experiment": SimpleNamespace(log=lambda values: None),
    }  # fmt: skip

    def step(number):
        names["epoch_loss"] = 0
        statement(FILE, "for batch in train_loader:", names)
        return names["epoch_loss"]

    return model, step


def symptom(bug, fix):
    return bug.norm() < 0.01 * fix.norm()
