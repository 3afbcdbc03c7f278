"""A training script clips the gradients after each part of an accumulated batch."""

from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import statement

FILE = "examples/run_glue.py"
CASE = Case(
    repository="huggingface/pytorch-pretrained-BERT",
    fix="abd7110e21",
    license="Apache-2.0",
    kind="clipping",
    what="a sum of gradients is clipped before it is complete, once for each part",
    paths=(FILE,),
)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.out = nn.Embedding(12, 8), nn.Linear(8, 3)

    def forward(self, input_ids, attention_mask, labels, token_type_ids):
        return (nn.functional.cross_entropy(self.out(self.embed(input_ids).mean(1)), labels),)


def build():
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batches = [
        (torch.randint(12, (4, 6)), torch.ones(4, 6), torch.zeros(4, 6), torch.randint(3, (4,)))
        for _ in range(4)
    ]
    names = {
        "torch": torch, "model": model, "optimizer": optimizer, "epoch_iterator": batches,
        "args": SimpleNamespace(
            device="cpu", model_type="bert", n_gpu=1, gradient_accumulation_steps=4, fp16=False,
            max_grad_norm=0.05, tpu=False, local_rank=-1, logging_steps=0, save_steps=0,
            max_steps=0,
        ),
        "scheduler": SimpleNamespace(step=lambda: None), "tr_loss": 0.0, "global_step": 0,
    }  # fmt: skip
    norms = []
    optimizer.register_step_pre_hook(
        lambda *_: norms.append(torch.cat([p.grad.flatten() for p in model.parameters()]).clone())
    )

    def step(number):
        statement(FILE, "for step, batch in enumerate(epoch_iterator):", names)
        return {"loss": names["tr_loss"], "gradient": norms[0]}

    return model, step


def symptom(bug, fix):
    first, second = bug.values[0]["gradient"], fix.values[0]["gradient"]
    return bool((first - second).norm() > 0.05 * second.norm())
