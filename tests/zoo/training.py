"""Training steps of a model of the zoo, in each of the ways in which it is trained."""

from __future__ import annotations

import contextlib
import random
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from tests.zoo.models import MODELS

if TYPE_CHECKING:
    from collections.abc import Callable

SWITCHES = (
    "gradient_checkpointing_enable", "enable_gradient_checkpointing", "set_grad_checkpointing",
)  # fmt: skip
"""The names of the method that turns on checkpointing in transformers, diffusers and timm."""


class Training(NamedTuple):
    """A model, and a function that makes one training step and returns its loss."""

    model: torch.nn.Module
    step: Callable[[], torch.Tensor]


def start(name: str, variant: str) -> Training:
    """Build a model with its optimizer; the same names give the same weights and inputs."""
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002 - some models draw from it
    entry = MODELS[name]
    model, loss_of = entry.build()
    model.train()
    if variant == "checkpoint":
        next(getattr(model, switch) for switch in SWITCHES if hasattr(model, switch))()
    elif variant == "lora":
        from peft import LoraConfig, get_peft_model

        model = get_peft_model(model, LoraConfig(r=4, target_modules=entry.lora))
    elif variant == "compile":
        torch._dynamo.reset()
        model.compile(backend="aot_eager")
    trained = [each for each in model.parameters() if each.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-3)

    def step():
        optimizer.zero_grad(set_to_none=True)
        with _autocast() if variant == "bf16" else contextlib.nullcontext():
            loss = loss_of()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return Training(model, step)


def _autocast():
    return torch.autocast("cpu", torch.bfloat16)


def outcome(name: str, variant: str, recording, steps: int = 2) -> dict[str, bytes]:
    """Return the bytes of all that a few steps compute: whatever recording could change."""
    model, step = start(name, variant)
    with recording(model):
        losses = [step() for _ in range(steps)]
    values = {f"loss {number}": loss for number, loss in enumerate(losses)}
    values |= {f"parameter {name}": each for name, each in model.named_parameters()}
    values |= {f"buffer {name}": each for name, each in model.named_buffers()}
    gradients = {f"gradient {name}": each.grad for name, each in model.named_parameters()}
    values |= {name: each for name, each in gradients.items() if each is not None}
    states = {
        "random state of Python": repr(random.getstate()).encode(),
        "random state of NumPy": repr(np.random.get_state()).encode(),  # noqa: NPY002
        "random state of PyTorch": _bytes(torch.get_rng_state()),
    }
    return states | {name: _bytes(each) for name, each in values.items()}


def _bytes(tensor) -> bytes:
    flat = tensor.detach().flatten().contiguous()
    return flat.view(torch.uint8).numpy().tobytes()
