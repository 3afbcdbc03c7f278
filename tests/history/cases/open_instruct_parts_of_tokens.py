"""Parts of a batch have the same weight, whatever number of tokens they have."""

from contextlib import nullcontext
from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import statement

FILE = "open_instruct/olmo_core_train_modules.py"
CASE = Case(
    repository="allenai/open-instruct",
    fix="e908fcc92",
    license="Apache-2.0",
    kind="accumulation",
    what="means over tokens are averaged over micro-batches, so short ones count too much",
    paths=(FILE,),
    within={FILE: ((148, 172),)},
)


class Policy(nn.Sequential):
    def post_batch(self, dry_run):
        return None


def build():
    from typing import Any

    names = {
        "torch": torch, "Any": Any,
        "split_batch_dpo": lambda batch, size: [
            dict(zip(batch, parts)) for parts in zip(*(v.split(size) for v in batch.values()))
        ],
    }  # fmt: skip
    statement(FILE, "def train_batch(", names)
    model = Policy(nn.Embedding(20, 8), nn.Linear(8, 20))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def log_prob(tokens, mask):
        scores = model(tokens).log_softmax(-1).gather(-1, tokens.roll(-1, 1)[..., None])
        return (scores.squeeze(-1) * mask).sum() / mask.sum()

    def compute(part):
        chosen = log_prob(part["chosen_input_ids"], part["chosen_attention_mask"])
        rejected = log_prob(part["rejected_input_ids"], part["rejected_attention_mask"])
        loss = -nn.functional.logsigmoid(chosen - rejected) - chosen
        return loss, {"loss": loss}

    trainer = SimpleNamespace(
        model=model, sample_microbatch_size=1, _metrics={"loss": torch.zeros(())},
        _train_microbatch_context=lambda index, number: nullcontext(),
        _compute_microbatch_loss=compute,
    )  # fmt: skip
    lengths = torch.tensor([3, 12])
    mask = (torch.arange(12) < lengths[:, None]).long()
    batch = {
        "chosen_input_ids": torch.randint(20, (2, 12)), "chosen_attention_mask": mask,
        "rejected_input_ids": torch.randint(20, (2, 12)), "rejected_attention_mask": mask,
    }  # fmt: skip

    def step(number):
        optimizer.zero_grad()
        names["train_batch"](trainer, batch, dry_run=True)
        optimizer.step()
        return trainer._metrics["loss"].clone()

    return model, step


def symptom(bug, fix):
    mine, right = (run.grads[0]["1.weight"] for run in (bug, fix))
    return bool((mine - right).norm() > 0.1 * right.norm())
