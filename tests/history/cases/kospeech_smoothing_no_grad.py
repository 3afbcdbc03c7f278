"""A loss with smoothed labels is computed within the block that makes the labels."""

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "kospeech/optim/loss.py"
CASE = Case(
    repository="sooftware/kospeech",
    fix="ad1ce8ef",
    license="Apache-2.0",
    kind="no_grad",
    what="the loss is returned from a block of `no_grad`, so it has no graph",
    paths=(FILE,),
)


def build():
    names = definitions(FILE, ["CrossEntrypyLoss"], {"PAD_token": 0})
    criterion = names["CrossEntrypyLoss"](num_classes=10, ignore_index=0, smoothing=0.1)
    model = nn.GRU(6, 10, batch_first=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    x, target = torch.randn(4, 7, 6), torch.randint(10, (4, 7))

    def step(number):
        optimizer.zero_grad()
        logits = model(x)[0].log_softmax(-1)
        loss = criterion(logits.flatten(0, 1), target.flatten())
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return "does not require grad" in bug.error
