"""Compares the plan of a training with the memory that it needs when it runs."""

from __future__ import annotations

from itertools import zip_longest

import torch

import autogradviz
from autogradviz.errors import StepNeedsValuesError
from tests.allocated_peak import allocated_peaks
from tests.storage_count import device_bytes, live_bytes
from tests.zoo.training import start

STEPS = 2
TRAINED = {
    "plain": (("plain", "SGD"), ("plain", "AdamW")),
    "checkpoint": (("checkpoint", "SGD"), ("checkpoint", "AdamW"), ("selective", "SGD")),
    "lora": (("lora", "AdamW"),),
}
"""The trainings that are planned with each way to train a model, and their optimizers."""


def compare_plans(name: str, variant: str) -> list[dict]:
    """Compare the plans of a model that is trained in some way."""
    trained = TRAINED.get(variant, ())
    if not hasattr(start(name, "plain").model, "gradient_checkpointing_enable"):
        trained = [each for each in trained if each[0] != "selective"]
    return [_compare(name, *each) for each in trained]


def compare_live_bytes(name: str, variant: str, device: str = "") -> list[int]:
    """Return the number of operators of a training, and after how many of them live bytes differ.

    The live bytes are those of ``memory_by_kind``, and of a count by weak references; those of a
    device are compared with the numbers of its allocator.
    """

    def training():
        model, step = start(name, variant)
        for _ in range(STEPS):
            step()
        return model, step

    if not device:
        ours, counted = live_bytes(training)
    else:
        with torch.device(device):
            ours, counted = device_bytes(training, device)
    return [len(ours), sum(a != b for a, b in zip_longest(ours, counted))]


def _compare(name: str, variant: str, optimizer: str) -> dict:
    """Return bytes of saved tensors and of the peak: planned, and those of the training itself.

    The peak of the training is that of PyTorch's CPU allocator, which has the buffers inside of
    kernels too; "tensors" is without these.
    """

    def training():
        model, step = start(name, variant, optimizer)
        for _ in range(STEPS):
            step()
        return model, step

    row = {"variant": variant, "optimizer": optimizer}
    try:
        plan = autogradviz.plan(training)
    except StepNeedsValuesError as error:
        return row | {"needs_values": str(error)}
    except Exception as error:
        return row | {"failed": f"{type(error).__name__}: {error}"[:300]}
    with autogradviz.record(engine="python") as recorded:
        training()
    measured = allocated_peaks(training)
    return row | {
        "saved": [plan.saved_bytes().saved, recorded.saved_bytes().saved],
        "peak": [plan.memory_by_kind().peak.total, measured.allocated],
        "tensors": measured.tensors,
    }
