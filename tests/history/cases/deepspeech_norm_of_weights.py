"""Gradients are clipped by the norm of the weights instead of their own."""

import time
from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import statement

FILE = "train.py"
CASE = Case(
    repository="SeanNaren/deepspeech.pytorch",
    fix="c8e8268",
    license="MIT",
    kind="clipping",
    what="the norm is that of parameters, so large gradients are not clipped",
    paths=(FILE,),
)


class Meter:
    val = avg = 0.0

    def update(self, value, n=1):
        self.val = self.avg = value


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.out = nn.GRU(6, 8, batch_first=True), nn.Linear(8, 5)

    def forward(self, x):
        return self.out(self.rnn(x)[0])


def build():
    model = Network()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, nesterov=True)
    connectionist = nn.CTCLoss(reduction="sum")

    def criterion(out, targets, sizes, target_sizes):
        return 20 * connectionist(out.log_softmax(-1), targets, sizes, target_sizes).view(1)

    sizes = torch.tensor([3, 2, 4, 3])
    loader = [(torch.randn(4, 12, 6), torch.randint(1, 5, (12,)), torch.ones(4), sizes)]
    names = {
        "torch": torch, "time": time, "Variable": lambda tensor: tensor, "model": model,
        "optimizer": optimizer, "criterion": criterion, "train_loader": loader, "epoch": 0,
        "args": SimpleNamespace(cuda=False, silent=True, max_norm=10.0), "end": 0.0,
        "batch_time": Meter(), "data_time": Meter(), "losses": Meter(), "avg_loss": 0,
    }  # fmt: skip

    def step(number):
        statement(FILE, "for i, (data) in enumerate(train_loader):", names)
        return names["loss"]

    return model, step


def symptom(bug, fix):
    return bug.norm() > 11.0 > fix.norm()
