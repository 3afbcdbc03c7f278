"""The labels of a contrastive loss do not know that the diagonal was removed."""

from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import statement

FILE = "simclr.py"
CASE = Case(
    repository="sthalles/SimCLR",
    fix="4c056cb919",
    license="MIT",
    kind="formula",
    what="the labels point at negatives, so views of one image are pushed apart",
    paths=(FILE,),
    within={FILE: ((34, 52),)},
)


def build():
    names = {"torch": torch, "F": nn.functional}
    statement(FILE, "def info_nce_loss(", names)
    args = SimpleNamespace(batch_size=4, n_views=2, device="cpu", temperature=0.5)
    model = nn.Linear(6, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    images = torch.randn(4, 6)
    views = torch.cat([images, images + 0.1 * torch.randn(4, 6)])

    def step(number):
        optimizer.zero_grad()
        features = model(views)
        logits, labels = names["info_nce_loss"](SimpleNamespace(args=args), features)
        loss = nn.functional.cross_entropy(logits, labels.long())
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return bug.losses[0] > fix.losses[0] + 0.1
