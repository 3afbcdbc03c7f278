"""An auxiliary loss is a sum over tokens and is divided by the number of parts of the batch."""

from types import MethodType, SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import statement

FILE = "olmo/train.py"
CASE = Case(
    repository="allenai/OLMo",
    fix="d15262a3",
    license="Apache-2.0",
    kind="scale",
    what="the sum over tokens is divided by the number of micro-batches, not of tokens",
    paths=(FILE,),
)


def build():
    from contextlib import nullcontext
    from typing import Any, Optional

    model = nn.Sequential(nn.Embedding(20, 8), nn.Linear(8, 20))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    tokens = torch.randint(20, (8, 6))

    def forward(batch, compute_z_loss, loss_reduction):
        logits = model(batch["input_ids"])[:, :-1].flatten(0, 1)
        labels = batch["input_ids"][:, 1:].flatten()
        loss = nn.functional.cross_entropy(logits, labels, reduction=loss_reduction)
        z_loss = 1e-2 * logits.logsumexp(-1).square().sum() if compute_z_loss else None
        return loss, z_loss, logits

    trainer = SimpleNamespace(
        cfg=SimpleNamespace(
            softmax_auxiliary_loss=True, distributed_strategy=None, ddp=None,
            autocast_precision=torch.bfloat16,
        ),
        device="cpu", model_forward=forward, dist_model=model,
        split_batch=lambda batch: [{"input_ids": part} for part in batch["input_ids"].split(2)],
    )  # fmt: skip
    names = {
        "torch": torch, "Any": Any, "Dict": dict, "List": list, "Optional": Optional,
        "Tuple": tuple, "nullcontext": nullcontext,
        "DistributedStrategy": SimpleNamespace(ddp="ddp"),
        "DDPGradSyncMode": SimpleNamespace(batch="batch"),
    }  # fmt: skip
    for name in ("train_micro_batch", "train_batch"):
        statement(FILE, f"def {name}(", names)
        setattr(trainer, name, MethodType(names[name], trainer))

    def step(number):
        optimizer.zero_grad(set_to_none=True)
        loss, z_loss = trainer.train_batch({"input_ids": tokens})
        optimizer.step()
        return {"loss": loss, "z_loss": z_loss}

    return model, step


def symptom(bug, fix):
    return bug.values[0]["z_loss"] > 2 * fix.values[0]["z_loss"]
