"""A loss is the sum over the samples of a batch, and not their mean."""

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "catalyst/contrib/nn/criterion/trevsky.py"
CASE = Case(
    repository="catalyst-team/catalyst",
    fix="d328897bf",
    license="Apache-2.0",
    kind="scale",
    what="the gradient grows with the size of the batch",
    paths=(FILE,),
)


def trevsky(outputs, targets, alpha, beta, class_dim, threshold, mode, weights, eps):
    beta = 1 - alpha if beta is None else beta
    hit = (outputs * targets).sum()
    missed = (targets * (1 - outputs)).sum()
    wrong = (outputs * (1 - targets)).sum()
    return (hit + eps) / (hit + alpha * missed + beta * wrong + eps)


def with_activation(metric_fn, activation):
    return lambda outputs, targets, **options: metric_fn(outputs.sigmoid(), targets, **options)


def build():
    names = {"wrap_metric_fn_with_activation": with_activation, "trevsky": trevsky}
    loss_of = definitions(FILE, ["TrevskyLoss", "FocalTrevskyLoss"], names)["FocalTrevskyLoss"](0.7)
    model = nn.Conv2d(3, 2, 3, padding=1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, target = torch.randn(6, 3, 8, 8), torch.randint(2, (6, 2, 8, 8)).float()

    def step(number):
        optimizer.zero_grad()
        loss = loss_of(model(x), target)
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return bug.norm() > 5 * fix.norm()
