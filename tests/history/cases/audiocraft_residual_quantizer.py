"""A straight-through estimator inside a residual makes all later residuals constant."""

import typing
from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "audiocraft/quantization/core_vq.py"
CASE = Case(
    repository="facebookresearch/audiocraft",
    fix="62c26ae",
    license="MIT",
    kind="constant",
    what="`residual - quantized` has no derivative, so later commitment losses train nothing",
    paths=(FILE,),
)


def build():
    names = definitions(
        FILE,
        ["exists", "default", "ema_inplace", "laplace_smoothing", "uniform_init", "sample_vectors",
         "EuclideanCodebook", "VectorQuantization", "ResidualVectorQuantization"],
        {"tp": typing,
         "flashy": SimpleNamespace(distrib=SimpleNamespace(broadcast_tensors=lambda b: None))},
    )  # fmt: skip
    quantizer = names["ResidualVectorQuantization"](
        num_quantizers=3, dim=4, codebook_size=8, kmeans_init=False, threshold_ema_dead_code=0
    )
    model = nn.ModuleDict({"encoder": nn.Conv1d(2, 4, 3), "quantizer": quantizer})
    optimizer = torch.optim.SGD(model["encoder"].parameters(), lr=0.1)
    x = torch.randn(2, 2, 10)

    def step(number):
        optimizer.zero_grad()
        _, _, losses = quantizer(model["encoder"](x))
        # Only the later codebooks: the first one is trained in another phase.
        loss = losses[1:].sum()
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return bug.norm("encoder") < 1e-6 < fix.norm("encoder")
