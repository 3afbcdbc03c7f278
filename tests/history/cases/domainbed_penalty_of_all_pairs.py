"""A gradient penalty sums the probabilities of the labels of all examples for each example."""

from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "domainbed/algorithms.py"
CASE = Case(
    repository="facebookresearch/DomainBed",
    fix="1538dc4",
    license="MIT",
    kind="broadcast",
    what="`disc_softmax[:, disc_labels]` has all pairs, and their sum is nearly constant",
    paths=(FILE,),
)


class Algorithm(nn.Module):
    def __init__(self, input_shape, num_classes, num_domains, hparams):
        super().__init__()
        self.hparams = hparams


class Featurizer(nn.Linear):
    n_outputs = 8

    def __init__(self, input_shape, hparams):
        super().__init__(6, 8)


def build():
    dann = definitions(FILE, ["AbstractDANN", "DANN"], {
        "Algorithm": Algorithm,
        "networks": SimpleNamespace(
            Featurizer=Featurizer, MLP=lambda n, out, hparams: nn.Linear(n, out),
            Classifier=lambda n, out, nonlinear: nn.Linear(n, out),
        ),
    })["DANN"]  # fmt: skip
    hparams = {
        "nonlinear_classifier": False, "lr_d": 1e-3, "lr_g": 1e-3, "weight_decay_d": 0.0,
        "weight_decay_g": 0.0, "beta1": 0.5, "grad_penalty": 1.0, "d_steps_per_g_step": 1,
        "lambda": 1.0,
    }  # fmt: skip
    model = dann((6,), 3, 2, hparams)
    batches = [(torch.randn(4, 6), torch.arange(4) % 3), (torch.randn(8, 6), torch.arange(8) % 3)]

    def step(number):
        return next(iter(model.update(batches).values()))

    return model, step


def symptom(bug, fix):
    mine, right = (run.grads[0]["discriminator.weight"] for run in (bug, fix))
    return bool((mine - right).norm() > 0.1 * right.norm())
