"""A loss over features is divided by the last index instead of the number of features."""

from collections import defaultdict
from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import statement

FILE = "parallel_wavegan/bin/train.py"
CASE = Case(
    repository="kan-bayashi/ParallelWaveGAN",
    fix="5ac69e1",
    license="MIT",
    kind="scale",
    what="the divisor counts from zero, so the mean over two features is their sum",
    paths=(FILE,),
    within={FILE: ((180, 200),)},
)


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv1d(1, 4, 5), nn.Conv1d(4, 4, 5)
        self.last = nn.Conv1d(4, 1, 1)

    def features(self, x):
        first = nn.functional.leaky_relu(self.first(x))
        second = nn.functional.leaky_relu(self.second(first))
        return [first, second, self.last(second)]

    def forward(self, x):
        return [self.features(x), self.features(nn.functional.avg_pool1d(x, 2))]


def build():
    names = {"torch": torch}
    statement(FILE, "def _train_step(", names)
    model = nn.ModuleDict({
        "generator": nn.Conv1d(2, 1, 5, padding=2), "discriminator": Discriminator(),
    })  # fmt: skip
    losses = defaultdict(float)

    def spectra(fake, real):
        difference = torch.fft.rfft(fake).abs() - torch.fft.rfft(real).abs()
        return difference.norm() / real.norm(), difference.abs().mean()

    trainer = SimpleNamespace(
        model=model, device="cpu", steps=1, total_train_loss=losses,
        criterion={"stft": spectra, "mse": nn.MSELoss(), "l1": nn.L1Loss()},
        config={
            "discriminator_train_start_steps": 0, "use_feat_match_loss": True, "lambda_adv": 4.0,
            "lambda_feat_match": 25.0, "generator_grad_norm": 0, "discriminator_grad_norm": 0,
        },
        optimizer={name: torch.optim.Adam(part.parameters(), lr=1e-4)
                   for name, part in model.items()},
        scheduler=dict.fromkeys(model, SimpleNamespace(step=lambda: None)),
        tqdm=SimpleNamespace(update=lambda number: None), _check_train_finish=lambda: None,
    )  # fmt: skip
    batch = (torch.randn(2, 2, 32),), torch.randn(2, 1, 32)

    def step(number):
        names["_train_step"](trainer, batch)
        return {
            "loss": losses["train/generator_loss"],
            "matching": losses["train/feature_matching_loss"],
        }

    return model, step


def symptom(bug, fix):
    return bug.values[0]["matching"] > 1.5 * fix.values[0]["matching"]
