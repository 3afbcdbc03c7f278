"""A checkpoint draws other random numbers when it recomputes."""

import torch
from torch import nn

from tests.history.case import Case

FILE = "torchgpipe/checkpoint.py"
CASE = Case(
    repository="kakaobrain/torchgpipe",
    fix="79248051f7",
    license="Apache-2.0",
    kind="recomputation",
    what="the state of the random number generator is not restored, so dropout has another mask",
    paths=(FILE, "torchgpipe/dependency.py", "torchgpipe/microbatch.py", "torchgpipe/phony.py",
           "torchgpipe/stream.py"),
    within={FILE: ((195, 196),)},
    also={FILE: (150, 151)},
)  # fmt: skip


def build():
    from torchgpipe.checkpoint import checkpoint

    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Dropout(0.5), nn.Linear(16, 2))
    x, y = torch.randn(8, 6), torch.randn(8, 2)

    def step(number):
        loss = (checkpoint(model, x) - y).square().mean()
        loss.backward()
        return loss

    return model, step


def symptom(bug, fix):
    mine, right = (run.grads[-1]["3.weight"] for run in (bug, fix))
    return bug.losses == fix.losses and float((mine - right).norm() / right.norm()) > 0.1
