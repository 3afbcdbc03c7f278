"""The target of a consistency loss has a gradient."""

from contextlib import nullcontext

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "src/algorithms/uda/uda.py"
CASE = Case(
    repository="microsoft/Semi-supervised-learning",
    fix="f31147c",
    license="MIT",
    kind="detach",
    what="predictions for weak augmentations are the target of the loss and are not detached",
    paths=(FILE,),
    within={FILE: ((60, 80),)},
)


def cross_entropy(logits, targets, reduction):
    return nn.functional.cross_entropy(logits, targets, reduction=reduction)


def build():
    algorithm_class = definitions(FILE, ["UDA"], {
        "AlgorithmBase": object, "ce_loss": cross_entropy, "SSL_Argument": None,
    })["UDA"]  # fmt: skip
    algorithm = algorithm_class.__new__(algorithm_class)
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.03)

    def update(loss):
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    algorithm.__dict__.update(
        model=model, use_cat=True, amp_cm=nullcontext, T=0.4, p_cutoff=0.0, tsa_schedule="none",
        it=0, num_train_iter=10, num_classes=4, lambda_u=1.0, parameter_update=update,
    )  # fmt: skip
    x, y = torch.randn(4, 6), torch.arange(4)
    weak = torch.randn(8, 6)
    strong = weak + 0.5 * torch.randn(8, 6)

    def step(number):
        return algorithm.train_step(x, y, weak, strong)["train/total_loss"]

    return model, step


def symptom(bug, fix):
    mine, right = (run.grads[0]["2.weight"] for run in (bug, fix))
    return bool((mine - right).norm() > 0.05 * right.norm())
