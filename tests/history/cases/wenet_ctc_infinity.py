"""The CTC loss of an utterance with too few frames is infinite."""

import torch

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "wenet/transformer/ctc.py"
CASE = Case(
    repository="wenet-e2e/wenet",
    fix="9612fda567",
    license="Apache-2.0",
    kind="nan",
    what="infinite losses are not set to zero, and one of them is enough for the batch",
    paths=(FILE,),
    also={FILE: (66,)},
)


def build():
    model = definitions(FILE, ["CTC"], {})["CTC"](7, 6)
    hidden, frames = torch.randn(3, 8, 6), torch.tensor([8, 7, 3])
    labels, lengths = torch.randint(1, 7, (3, 5)), torch.tensor([3, 2, 5])

    def step(number):
        loss, _ = model(hidden, frames, labels, lengths)
        loss.backward()
        return loss

    return model, step


def symptom(bug, fix):
    return bug.has_nan()
