"""Training steps of a model of the zoo, in each of the ways in which it is trained."""

from __future__ import annotations

import contextlib
import random
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch.utils.checkpoint import create_selective_checkpoint_contexts

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


def start(name: str, variant: str, optimizer: str = "AdamW") -> Training:
    """Build a model with its optimizer; the same names give the same weights and inputs.

    The variant "selective" checkpoints all but products of matrices; models of transformers only.
    """
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002 - some models draw from it
    entry = MODELS[name]
    model, loss_of = entry.build()
    model.train()
    if variant == "checkpoint":
        next(getattr(model, switch) for switch in SWITCHES if hasattr(model, switch))()
    elif variant == "selective":
        kept = [torch.ops.aten.mm.default, torch.ops.aten.addmm.default]
        contexts = partial(create_selective_checkpoint_contexts, kept)
        options = {"use_reentrant": False, "context_fn": contexts}
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=options)
    elif variant == "lora":
        from peft import LoraConfig, get_peft_model

        model = get_peft_model(model, LoraConfig(r=4, target_modules=entry.lora))
    elif variant == "compile":
        torch._dynamo.reset()
        model.compile(backend="aot_eager")
    trained = [each for each in model.parameters() if each.requires_grad]
    updates = getattr(torch.optim, optimizer)(trained, lr=1e-3)

    def step():
        updates.zero_grad(set_to_none=True)
        with _autocast() if variant == "bf16" else contextlib.nullcontext():
            loss = loss_of()
        loss.backward()
        updates.step()
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
