"""A loss of margins compares each query with all passages of the batch."""

from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE, UTIL = "sentence_transformers/losses/MarginMSELoss.py", "sentence_transformers/util.py"
CASE = Case(
    repository="UKPLab/sentence-transformers",
    fix="8a874678",
    license="Apache-2.0",
    kind="broadcast",
    what="margins are a matrix of all pairs, and the labels are broadcast to its rows",
    paths=(FILE, UTIL),
    within={FILE: ((1, 27),)},
)


def build():
    util = definitions(UTIL, ["dot_score", "pairwise_dot_score"], {})
    names = definitions(FILE, ["MarginMSELoss"], {"util": SimpleNamespace(**util)})
    model = nn.Embedding(30, 8)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    criterion = names["MarginMSELoss"](
        lambda features: {"sentence_embedding": model(features["input_ids"]).mean(1)}
    )
    texts = [{"input_ids": torch.randint(30, (8, 5))} for _ in range(3)]
    labels = torch.randn(8)

    def step(number):
        optimizer.zero_grad()
        loss = criterion(texts, labels)
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    mine, right = (run.grads[0]["weight"] for run in (bug, fix))
    return bool((mine - right).norm() > 0.1 * right.norm())
