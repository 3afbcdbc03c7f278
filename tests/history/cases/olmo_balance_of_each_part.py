"""A loss for the balance of experts is not divided by the number of parts of a batch."""

from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import statement

FILE = "olmo/train.py"
CASE = Case(
    repository="allenai/OLMo",
    fix="fbe84372",
    license="Apache-2.0",
    kind="accumulation",
    what="other terms are divided by the number of micro-batches, this one is not",
    paths=(FILE,),
    within={FILE: ((680, 710),)},
)


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.router = nn.Embedding(20, 8), nn.Linear(8, 4)
        self.experts, self.out = nn.Linear(8, 32), nn.Linear(8, 20)

    def forward(self, tokens):
        x = self.embed(tokens)
        gates = self.router(x).softmax(-1)
        fraction = nn.functional.one_hot(gates.argmax(-1), 4).float().mean((0, 1))
        self.balance = 4 * (fraction * gates.mean((0, 1))).sum()
        mixed = (self.experts(x).unflatten(-1, (4, 8)) * gates[..., None]).sum(-2)
        return self.out(x + mixed)


def build():
    from typing import Any, Optional

    model = Experts()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    tokens = torch.randint(20, (8, 6))

    def forward(batch, compute_z_loss):
        logits = model(batch["input_ids"])
        labels = batch["input_ids"][:, 1:].flatten()
        loss = nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels)
        return loss, None, logits

    names = {
        "torch": torch, "Any": Any, "Dict": dict, "Optional": Optional, "Tuple": tuple,
        "BlockType": SimpleNamespace(moe="moe"),
        "batched_load_balancing_loss": lambda settings: 0.01 * model.balance,
        "clear_load_balancing_loss": lambda: None,
    }  # fmt: skip
    statement(FILE, "def train_batch(", names)
    trainer = SimpleNamespace(
        cfg=SimpleNamespace(softmax_auxiliary_loss=False, autocast_precision=torch.bfloat16),
        device="cpu", model_forward=forward, moe_args=None,
        model=SimpleNamespace(config=SimpleNamespace(block_type="moe")),
        split_batch=lambda batch: [{"input_ids": part} for part in batch["input_ids"].split(1)],
    )  # fmt: skip

    def step(number):
        optimizer.zero_grad(set_to_none=True)
        loss, _, balance = names["train_batch"](trainer, {"input_ids": tokens})
        optimizer.step()
        return {"loss": loss, "balance": balance}

    return model, step


def symptom(bug, fix):
    mine, right = (run.grads[0]["router.weight"] for run in (bug, fix))
    return bool((mine - right).norm() > 0.1 * right.norm())
